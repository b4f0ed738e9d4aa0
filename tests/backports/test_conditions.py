"""Faults of releases that a complete pass over upstream's histories found: which setting brings each, which doesn't."""

from __future__ import annotations

from typing import Any

import pytest

from megatron_hcp.backports.lacking import lacking
from megatron_hcp.launch.load import LoadOptions, load_launch

MLM = "--num-layers 4 --num-experts 8 --pipeline-model-parallel-size 2"
GDN = "--num-layers 4 --experimental-attention-variant gated_delta_net"
VERL = "model_engine=megatron actor_rollout_ref.model.path=Qwen/Qwen3-30B-A3B"
ACTOR = "actor_rollout_ref.actor.megatron"
SLIME = "--actor-num-nodes 1 --actor-num-gpus-per-node 8 --calculate-per-token-loss"
PACKED = "dataset.packed_sequence_specs.packed_sequence_size=4096"
QWEN35 = "model._target_=megatron.bridge.models.qwen_vl.qwen35_vl_provider.Qwen35VLMoEModelProvider"
QWEN3 = "model._target_=megatron.bridge.models.qwen_vl.qwen3_vl_provider.Qwen3VLModelProvider"
OMNI = "model._target_=megatron.bridge.models.qwen_omni.qwen3_omni_provider.Qwen3OmniModelProvider"
MTP_SP = "model.mtp_num_layers=1 model.sequence_parallel=true model.tensor_model_parallel_size=2"
LORA = "peft.dim=8 model.num_moe_experts=8 model.expert_model_parallel_size=2"
STAGES = "model.mtp_num_layers=1 model.pipeline_model_parallel_size=4 model.pipeline_model_parallel_layout="
FSDP = "--num-layers 4 --use-megatron-fsdp --data-parallel-sharding-strategy"
Z_LOSS = f"+{ACTOR}.override_transformer_config.moe_z_loss_coeff=0.01"
BRIDGE = f"{VERL} {ACTOR}.use_mbridge=true {ACTOR}.vanilla_mbridge=false"
VERL_CP = f"{ACTOR}.context_parallel_size=2"
VL_CP = f"{BRIDGE} {VERL_CP}".replace("Qwen3-30B-A3B", "Qwen3-VL-30B-A3B-Instruct")
BLOCKS = f"+{ACTOR}.override_transformer_config.fp8_recipe=blockwise"
FP8 = f"+{ACTOR}.override_transformer_config.fp8=hybrid"
CP = "--context_parallel_size 2"
NEMO = "policy.megatron_cfg.enabled=true policy.model_name=Qwen/Qwen3-30B-A3B"
NEMO_CP = "policy.megatron_cfg.context_parallel_size=2"
EP = "policy.megatron_cfg.expert_model_parallel_size=2"
MBRIDGE = f"{VERL} {ACTOR}.use_mbridge=true {ACTOR}.vanilla_mbridge=true"
LORA_OF_VERL = f"actor_rollout_ref.model.lora.rank=16 +{ACTOR}.override_transformer_config.recompute_granularity=full"
SWIFT = "--model Qwen/Qwen3-8B"


@pytest.mark.parametrize(
    ("number", "dialect", "releases", "reached", "healthy"),
    [
        # What a release doesn't support yet
        ("2913", "bridge", "mcore=0.15.3", f"model.hybrid_override_pattern=M*M- {PACKED}", PACKED),
        ("2173", "bridge", "mcore=0.15.3", f"model.mtp_num_layers=1 {PACKED}", "model.mtp_num_layers=1"),
        ("1943", "bridge", "bridge=0.3.1", f"{QWEN3} model.context_parallel_size=2", QWEN3),
        ("3915", "bridge", "bridge=0.5.1", f"{OMNI} model.context_parallel_size=2", OMNI),
        ("9516", "ms-swift", "ms_swift=4.2.3", f"{SWIFT} {CP} --task_type embedding", f"{SWIFT} {CP}"),
        ("9516", "ms-swift", "ms_swift=4.2.3", f"{SWIFT} {CP} --rlhf_type rm", f"{SWIFT} {CP} --rlhf_type dpo"),
        ("7205", "ms-swift", "ms_swift=3.11.0", f"{SWIFT} --rlhf_type dpo --padding_free false", f"{SWIFT} {CP}"),
        # Megatron-LM
        ("5442", "mlm", "mcore=0.17.1", f"{MLM} --moe-use-upcycling --num-layers-per-virtual-pipeline-stage 1",
         f"{MLM} --moe-use-upcycling"),
        ("4433", "mlm", "mcore=0.17.1", f"{MLM} --cuda-graph-impl local --moe-router-enable-expert-bias",
         f"{MLM} --cuda-graph-impl local"),
        ("2997", "mlm", "mcore=0.16.1", f"{GDN} --overlap-moe-expert-parallel-comm --delay-wgrad-compute",
         f"{GDN} --overlap-moe-expert-parallel-comm"),
        ("2977", "mlm", "mcore=0.16.1", f"{MLM} --overlap-moe-expert-parallel-comm --delay-wgrad-compute "
         "--moe-latent-size 64", f"{MLM} --overlap-moe-expert-parallel-comm --delay-wgrad-compute"),
        ("3101", "mlm", "mcore=0.16.1 te=2.12", f"{MLM} --moe-permute-fusion",
         f"{MLM} --moe-permute-fusion --moe-token-dispatcher-type alltoall"),
        ("3140", "mlm", "mcore=0.15.3", "--optimizer-cpu-offload --overlap-cpu-optimizer-d2h-h2d",
         "--optimizer-cpu-offload"),
        ("2033", "mlm", "mcore=0.15.3", "--softmax-type learnable --transformer-impl local",
         "--softmax-type learnable"),
        ("1860", "mlm", "mcore=0.15.3 te=2.8", f"{MLM} --moe-shared-expert-intermediate-size 64 --fp8-format hybrid",
         f"{MLM} --moe-shared-expert-intermediate-size 64 --fp8-format hybrid --fp8-recipe tensorwise"),
        ("3023", "mlm", "mcore=0.15.3", f"{FSDP} optim_grads_params --grad-reduce-in-bf16",
         f"{FSDP} optim_grads_params"),
        ("2904", "mlm", "mcore=0.16.1 world_size=16", f"{FSDP} optim --num-experts 8 --expert-model-parallel-size 8",
         f"{FSDP} optim"),
        # Transformer Engine
        ("1965", "mlm", "te=2.5 world_size=2", "--multi-latent-attention --context-parallel-size 2 --fp8-format hybrid",
         "--multi-latent-attention --context-parallel-size 2"),
        ("2720", "mlm", "te=2.12", f"{MLM} --moe-router-fusion --moe-router-score-function sigmoid --moe-router-topk 1",
         f"{MLM} --moe-router-fusion --moe-router-score-function sigmoid --moe-router-topk 2"),
        ("3091", "mlm", "te=2.14 cudnn=9.15.0", "--num-layers 4 --qk-clip", "--num-layers 4"),
        # Megatron-Bridge
        ("5396", "bridge", "bridge=0.5.1", LORA, LORA.replace("peft.dim=8 ", "")),
        ("5376", "bridge", "bridge=0.5.1", f"{LORA} model.expert_tensor_parallel_size=2 checkpoint.load=there",
         f"{LORA} model.expert_tensor_parallel_size=2"),
        ("5380", "bridge", "bridge=0.5.1", f"{STAGES}Ett|tt|m|L", f"{STAGES}Et|tt|t|mL"),
        ("3330", "bridge", "bridge=0.4.2", f"{QWEN35} model.mtp_num_layers=1", QWEN35),
        ("3143", "bridge", "bridge=0.4.2", f"{QWEN35} {MTP_SP} model.share_embeddings_and_output_weights=true",
         f"{QWEN35} {MTP_SP}"),
        ("4657", "bridge", "bridge=0.5.1", "model._target_=megatron.bridge.models.kimi.kimi_provider.KimiK2Provider",
         QWEN3),
        # What Megatron-Bridge builds for others, and what it only does in its own training
        ("1762", "verl", "bridge=0.2.2", f"{BRIDGE} {LORA_OF_VERL}", BRIDGE),
        ("1762", "verl", "bridge=0.2.2", f"{BRIDGE} {LORA_OF_VERL}", f"{MBRIDGE} {LORA_OF_VERL}"),
        ("1564", "nemo-rl", "bridge=0.2.2", f"{NEMO} policy.megatron_cfg.peft.enabled=true {EP}", f"{NEMO} {EP}"),
        ("1943", "nemo-rl", "bridge=0.3.1", f"{NEMO} {NEMO_CP}".replace("Qwen3-30B-A3B", "Qwen3-VL-8B-Instruct"),
         f"{NEMO} {NEMO_CP}"),
        # Frameworks of reinforcement learning
        ("6432", "verl", "verl=0.7.1", f"{VERL} actor_rollout_ref.model.mtp.enable_train=True",
         f"{VERL} +{ACTOR}.override_transformer_config.mtp_num_layers=1"),
        ("5440", "verl", "verl=0.7.0", f"{VERL} {FP8} {BLOCKS} trainer.use_legacy_worker_impl=disable",
         f"{VERL} {BLOCKS} trainer.use_legacy_worker_impl=disable"),
        ("2933", "verl", "verl=0.5.0", VERL.replace("Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3"), VERL),
        ("6836", "verl", "verl=0.8.0 bridge=0.5.1", f"{VL_CP} {Z_LOSS}", f"{BRIDGE} {VERL_CP} {Z_LOSS}"),
        ("6836", "verl", "verl=0.8.0 bridge=0.5.1", f"{VL_CP} {Z_LOSS}", VL_CP),
        ("6952", "verl", "verl=0.8.0", f"{VERL} {FP8} {ACTOR}.param_offload=True", f"{VERL} {FP8}"),
        ("6682", "verl", "verl=0.8.0 bridge=0.4.2", BRIDGE, f"{VERL} {ACTOR}.use_mbridge=true"),
        ("5037", "verl", "verl=0.7.0", f"{VERL} {ACTOR}.router_replay.mode=R3".replace("Qwen/Qwen3-30B-A3B",
         "zai-org/GLM-4.5-Air"), f"{VERL} {ACTOR}.router_replay.mode=R3"),
        ("2872", "nemo-rl", "nemo_rl=0.6.0", "policy.megatron_cfg.enabled=true policy.logprob_chunk_size=1024",
         "policy.megatron_cfg.enabled=true"),
        ("2194", "nemo-rl", "nemo_rl=0.6.0", f"{NEMO} policy.megatron_cfg.moe_router_load_balancing_type=aux_loss",
         f"{NEMO} policy.megatron_cfg.moe_router_load_balancing_type=none"),
        ("9380", "ms-swift", "ms_swift=4.2.1", f"{SWIFT} {CP}", f"{SWIFT} {CP} --rlhf_type dpo"),
        ("8416", "ms-swift", "ms_swift=4.0.2", f"{SWIFT} {CP} --mtp_num_layers 1", f"{SWIFT} {CP}"),
        ("245", "slime", "slime=0.1.0", f"{SLIME} --use-tis", SLIME),
    ],
)  # fmt: skip
def test_a_fault_is_told_only_where_its_settings_are(
    number: str, dialect: Any, releases: str, reached: str, healthy: str
) -> None:
    assert number in _numbers(dialect, releases, reached) and number not in _numbers(dialect, releases, healthy)


def test_reward_models_of_ms_swift_train_with_context_parallelism_before_3_11() -> None:
    words = f"{SWIFT} {CP} --rlhf_type rm"
    assert "9516" in _numbers("ms-swift", "ms_swift=3.11.0", words)
    assert "9516" not in _numbers("ms-swift", "ms_swift=3.10.3", words)


def test_what_bridges_own_training_step_refuses_is_not_told_where_another_framework_trains() -> None:
    model = NEMO.replace("Qwen3-30B-A3B", "Qwen3-Omni-30B-A3B-Instruct")
    assert "3915" not in _numbers("nemo-rl", "bridge=0.5.1", f"{model} {NEMO_CP}")


def _numbers(dialect: Any, releases: str, words: str) -> set[str]:
    options = LoadOptions(dialect=dialect, words=tuple(words.split()), assumes=tuple(releases.split()))
    return {fix.number for item in lacking(load_launch("", options)).lacking for fix, _ in item.faults}
