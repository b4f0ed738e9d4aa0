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
    OVERLAPPED,
    OVERLAPPED_GPT,
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
_FSDP = "--use-megatron-fsdp --ckpt-format fsdp_dtensor --num-experts 8 --expert-model-parallel-size 2 --num-layers 4"
_OMNI = "model._target_=megatron.bridge.models.qwen_omni.qwen25_omni_provider.Qwen25OmniModelProvider"
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
        ">=0.4",
        when="model_name names qwen25omni qwen3omni and thd",
        title="Qwen's omni models get rows that aren't packed",
        why="Their thinker raises NotImplementedError if it gets the boundaries of packed rows.",
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
            "bridge", f"{_OMNI} dataset.pack_sequences_in_batch=true train.micro_batch_size=2", "bridge=0.6"
        ),
        good=Example("bridge", f"{_OMNI} dataset.pack_sequences_in_batch=false", "bridge=0.6"),
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
)

register_rows(ROWS, __name__)
