"""What a launch says whose ranks, environment or model do not fit its parallel sizes."""

from __future__ import annotations

from megatron_hcp.triage.signatures.row import Signature, launch_fault

LAYOUT: tuple[Signature, ...] = (
    launch_fault(
        "topology-experts",
        "TOPO004",
        r"world[ _]size ?\(\d+\) (?:is not|must be) divisible by (?:expert_tensor|expt_tp|etp)",
        "the number of ranks is not divisible by the experts' tensor x expert x pipeline size",
        "RuntimeError: decoder world_size (4) is not divisible by expert_tensor_model_pipeline_parallel size (8)",
        "RuntimeError: world_size (6) is not divisible by 4",
    ),
    launch_fault(
        "topology-world",
        "TOPO003",
        r"world[ _]size ?\(\d+\) (?:is not|must be) divisible by",
        "the number of ranks is not divisible by tp x pp x cp",
        "RuntimeError: world_size (6) is not divisible by 4",
        "RuntimeError: batch size (6) is not divisible by 4",
    ),
    launch_fault(
        "batch-divides",
        "BATCH001",
        r"global batch size \(?\d+\)? (?:is not|must be) divisible by micro batch size",
        "the global batch size is not divisible by micro-batch size x data-parallel size",
        "AssertionError: global batch size (32) is not divisible by micro batch size (3) times data parallel size (4)",
        "AssertionError: global batch size (32) is too large",
    ),
    launch_fault(
        "max-positions",
        "LEN001",
        r"max_position_embeddings (?:must be|should be|>=|is smaller)|exceeds (?:the )?max_position_embeddings",
        "the sequence is longer than the model's maximum number of positions",
        "AssertionError: max_position_embeddings must be >= seq_length",
        "AssertionError: max_position_embeddings is unknown",
    ),
    launch_fault(
        "topology-order",
        "TOPO005",
        r"When not using pp-last rank ordering, the data parallel size",
        "expert and attention layers get different data-parallel sizes under use_tp_pp_dp_mapping",
        "AssertionError: When not using pp-last rank ordering, the data parallel size of the attention and moe "
        "layers must be the same",
        "AssertionError: When using pp-last rank ordering, nothing is wrong",
    ),
    launch_fault(
        "cuda-connections",
        "ENV001",
        r"require setting the environment variable CUDA_DEVICE_MAX_CONNECTIONS to 1",
        "CUDA_DEVICE_MAX_CONNECTIONS must be 1 for this layout on this architecture",
        "AssertionError: Using tensor model parallelism or context parallelism require setting the environment "
        "variable CUDA_DEVICE_MAX_CONNECTIONS to 1",
        "UserWarning: consider setting the environment variable CUDA_DEVICE_MAX_CONNECTIONS to 1",
    ),
    launch_fault(
        "nvte-switch",
        "ENV002",
        r"NVTE_(?:FLASH|FUSED|UNFUSED)_ATTN (?:set to|is set)",
        "an NVTE_*_ATTN variable contradicts attention_backend",
        "AssertionError: NVTE_FUSED_ATTN set to 0, but expected 1 for attention backend type auto. unset "
        "NVTE_FLASH_ATTN, NVTE_FUSED_ATTN and NVTE_UNFUSED_ATTN.",
        "AssertionError: NVTE_APPLY_QK_LAYER_SCALING set to 0, but expected 1",
    ),
    launch_fault(
        "mamba-heads",
        "MODEL001",
        r"nheads must be evenly divisible by tp_size \* cp_size",
        "the Mamba heads are not divisible by tp x cp",
        "AssertionError: nheads must be evenly divisible by tp_size * cp_size",
        "AssertionError: nheads must be evenly divisible by tp_size",
    ),
)
