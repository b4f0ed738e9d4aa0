"""What attention says when its layout, heads or options cannot go with context parallelism."""

from __future__ import annotations

from megatron_hcp.triage.signatures.row import Signature, launch_fault

_BACKENDS = "run again with NVTE_DEBUG=1 NVTE_DEBUG_LEVEL=2: Transformer Engine then says why each backend was dropped"

CONTEXT_PARALLEL: tuple[Signature, ...] = (
    launch_fault(
        "cp-sinks",
        "CP010",
        r"Context parallelism only supports softmax_type",
        "attention sinks require cp_comm_type a2a",
    ),
    launch_fault(
        "cp-window",
        "CP009",
        r"[Cc]ontext parallelism (?:does not|cannot) support sliding window",
        "sliding-window layers require cp_comm_type a2a or all_gather (a2a+p2p: HCP018)",
    ),
    launch_fault(
        "cp-thd",
        "PACK007",
        r"thd format is not supported!",
        "this Transformer Engine does not support packed (thd) data with this cp_comm_type",
    ),
    launch_fault(
        "cp-seq-divisible",
        "CP001",
        r"[Ss]eq(?:uence |-)length (?:must be divisible by|should be a multiple of) 2 \* context.parallel.size",
        "the sequence length is not divisible by twice the context-parallel size",
    ),
    launch_fault(
        "cp-tp-slice",
        "CP002",
        r"First dimension of the tensor should be divisible by tensor parallel size",
        "a rank's slice of the sequence is not divisible by the tensor-parallel size",
    ),
    launch_fault(
        "cp-comm-spelling",
        "CP004",
        r"Unsupported communication type: ",
        "Transformer Engine does not know this cp_comm_type",
    ),
    launch_fault(
        "cp-comm-list",
        "CP005",
        r"Length of cp_comm_type \(\d+\) should equal",
        "the list of communication types does not have one entry per layer",
    ),
    launch_fault(
        "cp-local-attention",
        "CP006",
        r"Context parallelism is only supported by TEDotProductAttention",
        "the attention in use is not Transformer Engine's",
    ),
    launch_fault(
        "cp-a2a-heads",
        "CP007",
        r"requires num_heads % cp_size == 0|number of attention heads needs to be divisible by CP size",
        "a2a: a rank's attention heads are not divisible by the context-parallel size",
    ),
    launch_fault(
        "cp-gqa-tp",
        "CP008",
        r"num_query_groups \(\d+\) must be a multiple or divisor of tensor_model_parallel_size",
        "neither the number of KV heads nor the tensor-parallel size is a multiple of the other",
    ),
    launch_fault(
        "cp-padding-mask",
        "CP012",
        r"Padding mask not supported with context parallelism",
        "context parallelism does not support a padding mask",
    ),
    launch_fault(
        "cp-fp8",
        "CP014",
        r"FP8 is only supported with Fused Attention|Amax reduction across TP\+CP group is necessary",
        "FP8 attention with context parallelism: wrong backend or amax reduction",
    ),
    launch_fault(
        "fp8-shape",
        "CP003",
        r"FP8 execution requires the product of all dimensions|MXFP8 requires tensor dims that are divisible",
        "FP8: a rank's tokens do not fill whole blocks",
    ),
    launch_fault(
        "cp-batch-invariant",
        "CP018",
        r"Batch invariant mode does not support context parallelism",
        "batch-invariant mode does not support context parallelism",
    ),
    launch_fault(
        "attention-backend",
        "ENV005",
        r"No dot product attention (?:backend is available|support)",
        "Transformer Engine has no attention backend for this combination (window, sinks, bias, packing, FP8, "
        "an NVTE_* switch)",
        "hcp check {launch}",
        _BACKENDS,
    ),
)
