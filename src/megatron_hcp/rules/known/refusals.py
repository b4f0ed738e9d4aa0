"""What upstream's code refuses while it runs, after all checks of the configuration have passed."""

from __future__ import annotations

from megatron_hcp.rules.known.row import Known, register_rows
from megatron_hcp.rules.rule import Example, Fix
from megatron_hcp.rules.upstream import (
    BRIDGE_QWEN3_OMNI,
    BRIDGE_QWEN25_OMNI,
    COMBINED_1F1B,
    GATED_DELTA_NET,
    GATED_DELTA_NETS,
    MS_SWIFT_GRPO,
    OVERLAPPED,
    OVERLAPPED_GPT,
    SLIME_MODEL,
    SLIME_QWEN3_NEXT,
    VERL_MODEL_FORWARD,
)

_PACKED = "dataset.packed_sequence_specs.packed_sequence_size=4096"
_OVERLAP = (
    "model.num_moe_experts=8 model.expert_model_parallel_size=2 model.overlap_moe_expert_parallel_comm=true "
    "model.calculate_per_token_loss=true train.micro_batch_size=1 dataset._target_="
    "megatron.bridge.training.config.FinetuningDatasetConfig"
)
_GDN = (
    "--experimental-attention-variant gated_delta_net --linear-attention-freq 4 "
    "--no-create-attention-mask-in-dataloader"
)
_EXPERTS = "--num-experts 8 --expert-model-parallel-size 2 --moe-token-dispatcher-type alltoall --bf16"
_FSDP = f"--use-megatron-fsdp --ckpt-format fsdp_dtensor --num-layers 4 {_EXPERTS}"
_OMNI = "model._target_=megatron.bridge.models.qwen_omni.qwen3_omni_provider.Qwen3OmniModelProvider"
_VERL = (
    "model_engine=megatron actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref.actor.use_dynamic_bsz=True "
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192 "
    "+actor_rollout_ref.actor.megatron.override_transformer_config.fp8=hybrid "
    "actor_rollout_ref.actor.megatron.use_remove_padding="
)
_SLIME = "--actor-num-nodes 1 --actor-num-gpus-per-node 8 --calculate-per-token-loss"
_SPEC = f"{_SLIME} --spec slime_plugins.models.qwen3_next get_qwen3_next_spec --pipeline-model-parallel-size 2"
_MTP = (
    f"{_SLIME} --position-embedding-type rope --enable-mtp-training --mtp-num-layers 1 {_EXPERTS} --num-layers 8 "
    "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2"
)
_WITHOUT_OVERLAP = Fix({"overlap_moe_expert_parallel_comm": False}, "experts' communication isn't overlapped")

ROWS: tuple[Known, ...] = (
    Known(
        "KNOWN129",
        "mcore",
        ">=0.14",
        when="overlap_moe_expert_parallel_comm and mtp_layers > 0 and thd and packing in offline in_batch energon sft",
        title="Packed rows run without the overlapped all-to-all or without MTP",
        why="The overlapped schedule has its own forward pass of multi-token prediction, which asserts that rows "
        "aren't packed.",
        symptom="the first forward pass fails: multi-token prediction in the overlapped schedule refuses packed rows",
        issue="NVIDIA/Megatron-LM, fine_grained_callables.py",
        outcome="error crash first-forward",
        source=(
            OVERLAPPED_GPT.says(
                "build_mtp_layer_callables",
                "multi token prediction + sequence packing is not yet supported.",
                ">=0.14,<0.19",
                branches=(),
            ),
            OVERLAPPED.says("", "multi token prediction + sequence packing is not yet supported.", ">=0.19"),
        ),
        launch=Example("bridge", f"{_OVERLAP} model.mtp_num_layers=1 {_PACKED}", "mcore=0.18.2"),
        good=Example("bridge", f"{_OVERLAP} {_PACKED}", "mcore=0.18.2"),
        instead="no overlap_moe_expert_parallel_comm",
        fixes=(_WITHOUT_OVERLAP,),
    ),
    Known(
        "KNOWN130",
        "bridge",
        ">=0.6",
        when="model_name names qwen25omni qwen3omni and thd",
        title="Qwen's omni models get rows that aren't packed",
        why="Their thinker, and Qwen3-Omni's training step, raise NotImplementedError for packed rows. Before 0.6 that "
        "step doesn't pack.",
        symptom="the first forward pass fails: Bridge's omni models don't support packed rows",
        issue="NVIDIA-NeMo/Megatron-Bridge, thinker_model.py",
        outcome="error crash first-forward",
        source=(
            BRIDGE_QWEN25_OMNI.says("Qwen25OmniThinkerModel.forward", "packed_seq_params is not supported", ">=0.4"),
            BRIDGE_QWEN3_OMNI.says(
                "Qwen3OmniThinkerModel.forward", "packed sequence support is not implemented yet", ">=0.5"
            ),
        ),
        launch=Example(
            "bridge", f"{_OMNI} dataset.enable_in_batch_packing=true train.micro_batch_size=2", "bridge=0.6"
        ),
        good=Example("bridge", f"{_OMNI} dataset.enable_in_batch_packing=false", "bridge=0.6"),
        instead="rows that aren't packed",
    ),
    Known(
        "KNOWN131",
        "mcore",
        ">=0.18",
        when="attention_variant in gated_delta_net gdn and thd and deterministic",
        title="Gated delta nets run packed rows without deterministic mode",
        why="Since they accept packed rows, they assert that deterministic mode is off for them.",
        symptom="the first forward pass fails: gated delta nets refuse packed rows in deterministic mode",
        issue="NVIDIA/Megatron-LM, gated_delta_net.py",
        outcome="error crash first-forward",
        source=(
            GATED_DELTA_NET.says(
                "GatedDeltaNet.forward",
                "Packed sequence does not support deterministic mode.",
                ">=0.18,<0.19",
                branches=(),
            ),
            GATED_DELTA_NETS.says(
                "GatedDeltaNet.forward", "Packed sequence does not support deterministic mode.", ">=0.19"
            ),
        ),
        launch=Example("mlm", f"{_GDN} --sft --micro-batch-size 1 --deterministic-mode"),
        good=Example("mlm", f"{_GDN} --sft --micro-batch-size 1", "mcore=0.18.2"),
        instead="no deterministic mode",
        fixes=(Fix({"deterministic": False}, "no deterministic mode"),),
    ),
    Known(
        "KNOWN132",
        "mcore",
        ">=0.18",
        when="fsdp and overlap_moe_expert_parallel_comm and vpp > 1",
        title="Megatron-FSDP overlaps the all-to-all without virtual stages",
        why="Since 0.18 the overlapped schedule supports Megatron-FSDP, but its interleaved form asserts that no "
        "virtual stage is wrapped by it.",
        symptom="the first step fails: the interleaved schedule with the overlapped all-to-all refuses Megatron-FSDP",
        issue="NVIDIA/Megatron-LM#3797",
        outcome="error crash first-forward",
        source=(
            COMBINED_1F1B.says(
                "combined_1f1b_schedule_for_interleaved_pipelining",
                "EP overlap 1F1B with FSDP is not supported for interleaved ",
                ">=0.18",
            ),
        ),
        launch=Example(
            "mlm",
            f"{_FSDP} --overlap-moe-expert-parallel-comm --pipeline-model-parallel-size 2 "
            "--num-layers-per-virtual-pipeline-stage 1",
        ),
        good=Example(
            "mlm", f"{_FSDP} --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1", "mcore=0.18.2"
        ),
        instead="no overlap_moe_expert_parallel_comm",
        fixes=(_WITHOUT_OVERLAP,),
    ),
    Known(
        "KNOWN133",
        "ms_swift",
        ">=3.12",
        when="rlhf_type in grpo gkd and vpp > 1",
        title="GRPO and GKD run without virtual pipeline stages",
        why="GKD's teacher asserts it, and so does GRPO's reference model, which a KL penalty (beta) needs.",
        symptom="GKD, and GRPO with a KL penalty, end in an AssertionError: they don't support virtual stages",
        issue="modelscope/ms-swift, grpo_trainer.py",
        outcome="warning crash training",
        source=(
            MS_SWIFT_GRPO.says(
                "MegatronGRPOTrainer._maybe_compute_logps", "GRPO currently does not support VPP.", ">=4.2"
            ),
        ),
        launch=Example(
            "ms-swift",
            "--model Qwen/Qwen3-8B --rlhf_type grpo --pipeline_model_parallel_size 2 "
            "--virtual_pipeline_model_parallel_size 2",
            "gpus_per_node=8 nodes=1 ms_swift=4.5.2",
        ),
        good=Example(
            "ms-swift",
            "--model Qwen/Qwen3-8B --rlhf_type grpo --pipeline_model_parallel_size 2",
            "gpus_per_node=8 nodes=1 ms_swift=4.5.2",
        ),
        instead="no virtual stages",
        fixes=(Fix({"vpp": None}, "no virtual stages"),),
    ),
    Known(
        "KNOWN134",
        "verl",
        ">=0.7,<0.8",
        when="fp8 != null and not use_remove_padding",
        title="verl's legacy workers train packed rows in FP8",
        why="The legacy workers, PPO's default, pad packed rows to what FP8's kernels need; for rows that aren't "
        "packed they assert that FP8 is off. The engine doesn't (fine-tuning, and PPO with "
        "use_legacy_worker_impl=disable).",
        symptom="the first forward pass of the legacy workers fails: they don't support FP8 without packed rows",
        issue="verl-project/verl, model_forward.py",
        outcome="warning crash first-forward",
        source=(VERL_MODEL_FORWARD.says("", "fp8 is not supported for bshd format yet", ">=0.7,<0.8", branches=()),),
        launch=Example("verl", f"{_VERL}False"),
        instead="use_remove_padding",
        fixes=(Fix({"use_remove_padding": True}, "packed rows"),),
    ),
    Known(
        "KNOWN135",
        "slime",
        ">=0.2",
        when="mtp_training and overlap_moe_expert_parallel_comm",
        title="MTP is trained without the overlapped all-to-all",
        why="slime asserts it where it hands the schedule its plan.",
        symptom="the first step fails: slime refuses to train MTP with the overlapped all-to-all",
        issue="THUDM/slime#565",
        outcome="error crash first-forward",
        source=(
            SLIME_MODEL.says("train_one_step", "MTP training should not be enabled when using combined 1f1b", ">=0.2"),
        ),
        launch=Example("slime", f"{_MTP} --overlap-moe-expert-parallel-comm"),
        good=Example("slime", _MTP, "slime=0.3.1"),
        instead="no --overlap-moe-expert-parallel-comm",
        fixes=(_WITHOUT_OVERLAP,),
    ),
    Known(
        "KNOWN136",
        "slime",
        ">=0.2",
        when="spec names qwen35 qwen3next and pipeline_layout != null",
        title="slime's Qwen3-Next and Qwen3.5 run without a pipeline layout",
        why="slime cuts the layers of a stage out of the specs itself, and asserts that no layout is given.",
        symptom="building the model fails: slime's specs of Qwen3-Next and Qwen3.5 refuse a pipeline layout",
        issue="THUDM/slime, qwen3_next.py",
        outcome="error crash init",
        source=(
            SLIME_QWEN3_NEXT.says("get_qwen3_next_spec", "config.pipeline_model_parallel_layout is None", ">=0.2"),
        ),
        launch=Example("slime", f"{_SPEC} --pipeline-model-parallel-layout Et*24|t*24L", "slime=0.3.1"),
        good=Example("slime", _SPEC, "slime=0.3.1"),
        instead="no --pipeline-model-parallel-layout",
        fixes=(Fix({"pipeline_layout": None}, "stages of equal size"),),
    ),
)

register_rows(ROWS, __name__)
