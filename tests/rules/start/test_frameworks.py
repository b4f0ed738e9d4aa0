"""A row of every START rule of the frameworks on Megatron besides its examples: what is refused, and what is fine."""

from __future__ import annotations

from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

A, R = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
VERL = f"model_engine=megatron trainer.nnodes=1 algorithm.adv_estimator=grpo {R}name=vllm {A}use_dynamic_bsz=true "
CRITIC = (
    f"{VERL}critic.enable=true critic.use_dynamic_bsz=false critic.ppo_micro_batch_size_per_gpu=null "
    "critic.ppo_micro_batch_size="
)
"""The other size refers to this one in verl's YAML: alone, it sets both, which verl refuses."""
SLIME = (
    "--actor-num-nodes 1 --actor-num-gpus-per-node 8 --rollout-batch-size 32 --num-rollout 10 --num-layers 2 "
    "--hidden-size 64 --num-attention-heads 4 --micro-batch-size 1 --over-sampling-batch-size "
)
STEPS = f"{SLIME}32 --n-samples-per-prompt 8 --num-steps-per-rollout "
EXPERTS = (
    f"ray job submit -- python train.py {SLIME}32 --max-position-embeddings 4096 --num-experts 4 --moe-grouped-gemm "
    "--use-rotary-position-embeddings --hf-checkpoint model {}\n"
)
SWIFT = "--model Qwen/Qwen3-8B --dataset data "
NEMO = "policy.megatron_cfg.enabled=true "
DTENSOR = (
    "policy.megatron_cfg.enabled=false policy.dtensor_cfg.enabled=true policy.dtensor_cfg.context_parallel_size=2 "
    "policy.dtensor_cfg.tensor_parallel_size=2 policy.sequence_packing.enabled=false "
)
POPPED = (
    "policy.megatron_cfg.enabled=false policy.dtensor_cfg.enabled=true policy.dtensor_cfg.context_parallel_size=1 "
    "policy.dtensor_cfg.tensor_parallel_size=2 policy.sequence_packing.enabled=true policy.dtensor_cfg._v2=true "
    "policy.precision=bfloat16 policy.dtensor_cfg.sequence_parallel=false "
    "policy.dtensor_cfg.automodel_kwargs.attn_implementation="
)
SEQUENCE = f"{DTENSOR}policy.dtensor_cfg.sequence_parallel="
OFFLOAD = "policy.megatron_cfg.optimizer.optimizer_cpu_offload="
FRACTION = "policy.megatron_cfg.optimizer.optimizer_offload_fraction="
ERROR = "error crash config"

WEIGHT_DECAY = "--apply_wd_to_qk_layernorm true"
VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("START030", "ms-swift", f"{SWIFT}{WEIGHT_DECAY}", "ms_swift=4.5.2", ERROR),
    ("START030", "ms-swift", f"{SWIFT}{WEIGHT_DECAY} --model_type qwen3_next", "ms_swift=4.5.2", "all:"),
    ("START030", "ms-swift", f"--model Qwen/Qwen3.5-4B --dataset data {WEIGHT_DECAY}", "ms_swift=4.5.2", "all:"),
    ("START021", "verl", f"{VERL}{R}val_kwargs.do_sample=true {R}temperature=0", "verl=0.8.0", ERROR),
    ("START021", "verl", f"{VERL}{R}val_kwargs.do_sample=true {R}temperature=1", "verl=0.8.0", "all:"),
    ("START021", "mlm", "--bf16", "mcore=0.17.0", "not concerned"),
    ("START022", "verl", f"{VERL}{A}loss_agg_mode=sum", "verl=0.8.0", ERROR),
    ("START022", "verl", f"{VERL}{A}loss_agg_mode=token-mean", "verl=0.8.0", "all:"),
    ("START022", "mlm", "--bf16", "mcore=0.17.0", "not concerned"),
    ("START023", "verl", f"{CRITIC}24", "verl=0.8.0", ERROR),
    ("START023", "verl", f"{CRITIC}16", "verl=0.8.0", "all:"),
    ("START023", "mlm", "--bf16", "mcore=0.17.0", "not concerned"),
    ("START024", "verl", f"{VERL}{A}megatron.dtype=half", "verl=0.8.0", ERROR),
    ("START024", "verl", f"{VERL}{A}megatron.dtype=bfloat16", "verl=0.8.0", "all:"),
    ("START024", "mlm", "--bf16", "mcore=0.17.0", "not concerned"),
    ("START025", "verl", f"{VERL}{R}pipeline_model_parallel_size=4", "verl=0.8.0", ERROR),
    ("START025", "verl", VERL, "verl=0.8.0", "all:"),
    ("START025", "mlm", "--bf16", "mcore=0.17.0", "not concerned"),
    ("START026", "verl", f"{VERL}{A}optim.exp_avg_dtype=int8", "verl=0.9.1", ERROR),
    ("START026", "verl", f"{VERL}{A}optim.exp_avg_dtype=fp32", "verl=0.9.1", "all:"),
    ("START026", "mlm", "--bf16", "mcore=0.17.0", "not concerned"),
    ("START027", "slime", f"{SLIME}31", "slime=0.3.1", ERROR),
    ("START027", "slime", f"{SLIME}32", "slime=0.3.1", "all:"),
    ("START027", "mlm", "--bf16", "mcore=0.17.0", "not concerned"),
    ("START028", "slime", f"{SLIME}31", "miles=0.1.0", ERROR),
    ("START028", "slime", f"{SLIME}32 --use-miles-dashboard", "miles=0.1.0", ERROR),
    ("START028", "slime", f"{SLIME}32 --multi-lora-n-adapters 4", "miles=0.1.0", ERROR),
    ("START028", "slime", f"{SLIME}32 --eval-num-gpus 4", "miles=0.1.0", ERROR),
    ("START028", "slime", f"{SLIME}32", "miles=0.1.0", "all:"),
    ("START028", "mlm", "--bf16", "mcore=0.17.0", "not concerned"),
    ("START029", "ms-swift", f"{SWIFT}--packing true --lazy_tokenize true", "ms_swift=4.4.3", ERROR),
    ("START029", "ms-swift", f"{SWIFT}--packing true", "ms_swift=4.4.3", "all:"),
    ("START029", "mlm", "--bf16", "mcore=0.17.0", "not concerned"),
    ("START030", "ms-swift", f"{SWIFT}--group_by_length true", "ms_swift=4.3.2", ERROR),
    ("START030", "ms-swift", f"{SWIFT}--group_by_length true --padding_free false", "ms_swift=4.3.2", "all:"),
    ("START030", "mlm", "--bf16", "mcore=0.17.0", "not concerned"),
    ("START031", "nemo-rl", f"{NEMO}grpo.use_dynamic_sampling=false grpo.batch_multiplier=3", "nemo_rl=0.5.0", ERROR),
    ("START031", "nemo-rl", f"{NEMO}grpo.use_dynamic_sampling=false grpo.batch_multiplier=1", "nemo_rl=0.5.0", "all:"),
    ("START031", "mlm", "--bf16", "mcore=0.17.0", "not concerned"),
    ("START032", "nemo-rl", f"{NEMO}policy.dtensor_cfg.enabled=true", "nemo_rl=0.5.0", ERROR),
    ("START032", "nemo-rl", f"{NEMO}policy.dtensor_cfg.enabled=false", "nemo_rl=0.5.0", "all:"),
    ("START032", "mlm", "--bf16", "mcore=0.17.0", "not concerned"),
    ("START033", "nemo-rl", f"{NEMO}{OFFLOAD}true {FRACTION}0.5", "nemo_rl=0.6.0", ERROR),
    ("START033", "nemo-rl", f"{NEMO}{OFFLOAD}true {FRACTION}1.0", "nemo_rl=0.6.0", "all:"),
    ("START033", "mlm", "--bf16", "mcore=0.17.0", "not concerned"),
    ("START006", "slime", f"{STEPS}64", "slime=0.3.1", "error crash config"),
    ("START006", "slime", f"{STEPS}32", "slime=0.3.1", "all:"),
    ("START034", "slime", EXPERTS.format(""), "slime=0.3.0 te=2.9.0", ERROR),
    ("START034", "slime", EXPERTS.format("--no-bias-dropout-fusion"), "slime=0.3.0 te=2.9.0", "not concerned"),
    ("START034", "slime", EXPERTS.format("--megatron-to-hf-mode bridge"), "slime=0.3.0 te=2.9.0", "not concerned"),
    ("START034", "slime", EXPERTS.format("--megatron-to-hf-mode bridge"), "miles=0.1.0 te=2.9.0", "not concerned"),
    ("START034", "slime", EXPERTS.format("--custom-model-provider-path x.y"), "slime=0.3.1 te=2.9.0", "not concerned"),
    ("START035", "nemo-rl", f"{SEQUENCE}true policy.dtensor_cfg._v2=true", "nemo_rl=0.4.0", ERROR),
    ("START035", "nemo-rl", f"{SEQUENCE}true policy.dtensor_cfg._v2=true", "nemo_rl=0.6.0", ERROR),
    ("START035", "nemo-rl", f"{SEQUENCE}true policy.dtensor_cfg._v2=false", "nemo_rl=0.6.0", ERROR),
    ("START035", "nemo-rl", f"{SEQUENCE}false policy.dtensor_cfg._v2=true", "nemo_rl=0.6.0", "all:"),
    ("START035", "nemo-rl", f"{DTENSOR}policy.precision=int8 policy.dtensor_cfg._v2=false", "nemo_rl=0.4.0", ERROR),
    ("START035", "nemo-rl", f"{NEMO}policy.dtensor_cfg._v2=true", "nemo_rl=0.6.0", "all:"),
    ("START035", "nemo-rl", f"{POPPED}sdpa", "nemo_rl=0.7.0", ERROR),
    ("START035", "nemo-rl", f"{POPPED}flash_attention_2", "nemo_rl=0.7.0", "all:"),
    ("START035", "mlm", "--bf16", "mcore=0.17.0", "not concerned"),
]
