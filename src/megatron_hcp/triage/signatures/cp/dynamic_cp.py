"""What dynamic context parallelism says when its groups, limits or versions are wrong."""

from __future__ import annotations

from megatron_hcp.triage.signatures.row import Signature, launch_fault

_DYNAMIC = r"hybrid_?(?:cp|context)|dynamic_?(?:cp|context)|data_schedule"

DYNAMIC_CP: tuple[Signature, ...] = (
    launch_fault(
        "dcp-no-group",
        "DCP007",
        r"\bKeyError: (?:4|8|16|32|64|128)$",
        "dynamic CP chose a group size that has no process group (DP x CP is not a power of two)",
        context=_DYNAMIC,
    ),
    launch_fault(
        "dcp-too-long",
        "DCP006",
        r"There should be at least one group existing, cannot re",
        "dynamic CP: a sample is longer than max_seqlen_per_dp_cp_rank times the largest group",
    ),
    launch_fault(
        "dcp-even",
        "DCP007",
        r"[Cc]ontext parallel(?:ism)? requires an even number of ranks",
        "dynamic CP requires an even number of DP x CP ranks",
    ),
    launch_fault(
        "dcp-shape",
        "DCP001",
        r"\bIndexError: tuple index out of range$",
        "dynamic CP with the stock script on megatron-core 0.18 or later: the batches are 1-D tensors",
        context=_DYNAMIC,
    ),
    launch_fault(
        "dcp-limit",
        "DCP005",
        r"unsupported operand type\(s\) for /: 'int' and 'NoneType'",
        "dynamic CP requires max_seqlen_per_dp_cp_rank, which is not set",
        context=_DYNAMIC,
    ),
    launch_fault(
        "dcp-stream",
        "DCP010",
        r"'NoneType' object has no attribute 'wait_event'",
        "dynamic CP with a static context-parallel size of 1: its CUDA stream was never created",
        context=_DYNAMIC,
    ),
    launch_fault(
        "dcp-mla",
        "DCP011",
        r"(?:hybrid|dynamic)_context_parallel is not supported with MLA",
        "this dynamic CP does not support multi-latent attention",
    ),
    launch_fault(
        "dcp-cu-seqlens",
        "DCP015",
        r"\bKeyError: 'cu_seqlens'",
        "dynamic CP: the dataset provides no cu_seqlens",
        context=_DYNAMIC,
    ),
    launch_fault(
        "dcp-build",
        "DCP024",
        r"Dynamic CP requires a Megatron-Core build containing",
        "verl's dynamic CP requires megatron-core's dev branch",
    ),
    launch_fault(
        "dcp-empty-split",
        "DCP025",
        r"Cannot construct a nested tensor from an empty tensor list",
        "verl 0.8.0's dynamic CP split left a rank without sequences",
    ),
    launch_fault(
        "dcp-verl-length",
        "DCP022",
        r"A sequence with \d+ tokens needs at least \d+ ranks at max_seqlen_per_dp_cp_rank",
        "verl's dynamic CP: a sequence does not fit on all ranks together",
    ),
)
