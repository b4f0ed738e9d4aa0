"""What a launch says whose ranks, environment or model do not fit its parallel sizes."""

from __future__ import annotations

from megatron_hcp.triage.signatures.row import Signature, launch_fault

LAYOUT: tuple[Signature, ...] = (
    launch_fault(
        "topology-experts",
        "TOPO004",
        r"world[ _]size ?\(\d+\) (?:is not|must be) divisible by (?:expert_tensor|expt_tp|etp)",
        "the number of ranks is not divisible by the experts' tensor x expert x pipeline size",
    ),
    launch_fault(
        "topology-world",
        "TOPO003",
        r"world[ _]size ?\(\d+\) (?:is not|must be) divisible by",
        "the number of ranks is not divisible by tp x pp x cp",
    ),
    launch_fault(
        "batch-divides",
        "BATCH001",
        r"global batch size \(?\d+\)? (?:is not|must be) divisible by micro batch size",
        "the global batch size is not divisible by micro-batch size x data-parallel size",
    ),
    launch_fault(
        "max-positions",
        "LEN001",
        r"max_position_embeddings (?:must be|should be|>=|is smaller)|exceeds (?:the )?max_position_embeddings",
        "the sequence is longer than the model's maximum number of positions",
    ),
    launch_fault(
        "topology-order",
        "TOPO005",
        r"When not using pp-last rank ordering, the data parallel size",
        "expert and attention layers get different data-parallel sizes under use_tp_pp_dp_mapping",
    ),
    launch_fault(
        "cuda-connections",
        "ENV001",
        r"require setting the environment variable CUDA_DEVICE_MAX_CONNECTIONS to 1",
        "CUDA_DEVICE_MAX_CONNECTIONS must be 1 for this layout on this architecture",
    ),
    launch_fault(
        "nvte-switch",
        "ENV002",
        r"NVTE_(?:FLASH|FUSED|UNFUSED)_ATTN (?:set to|is set)",
        "an NVTE_*_ATTN variable contradicts attention_backend",
    ),
    launch_fault(
        "mamba-heads",
        "MODEL001",
        r"nheads must be evenly divisible by tp_size \* cp_size",
        "the Mamba heads are not divisible by tp x cp",
    ),
)
