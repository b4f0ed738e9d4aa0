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
        "AssertionError: Context parallelism only supports softmax_type='learnable' with cp_comm_type = 'a2a'!",
        "AssertionError: softmax_type='learnable' needs FusedAttention",
    ),
    launch_fault(
        "cp-window",
        "CP009",
        r"[Cc]ontext parallelism (?:does not|cannot) support sliding window",
        "sliding-window layers require cp_comm_type a2a or all_gather (a2a+p2p: HCP018)",
        "AssertionError: Context parallelism does not support sliding window attention with cp_comm_type='a2a+p2p'!",
        "AssertionError: sliding window attention needs a causal mask",
    ),
    launch_fault(
        "cp-thd",
        "PACK007",
        r"thd format is not supported!",
        "this Transformer Engine does not support packed (thd) data with this cp_comm_type",
        "AssertionError: thd format is not supported!",
        "AssertionError: bshd format is not supported!",
    ),
    launch_fault(
        "cp-seq-divisible",
        "CP001",
        r"[Ss]eq(?:uence |-)length (?:must be divisible by|should be a multiple of) 2 \* context.parallel.size",
        "the sequence length is not divisible by twice the context-parallel size",
        "AssertionError: seq-length should be a multiple of 2 * context-parallel-size if context-parallel-size > 1.",
        "AssertionError: seq-length should be a multiple of 128",
    ),
    launch_fault(
        "cp-tp-slice",
        "CP002",
        r"First dimension of the tensor should be divisible by tensor parallel size",
        "a rank's slice of the sequence is not divisible by the tensor-parallel size",
        "AssertionError: First dimension of the tensor should be divisible by tensor parallel size",
        "AssertionError: Last dimension of the tensor should be divisible by tensor parallel size",
    ),
    launch_fault(
        "cp-comm-spelling",
        "CP004",
        r"Unsupported communication type: ",
        "Transformer Engine does not know this cp_comm_type",
        "ValueError: Unsupported communication type: allgather!",
        "ValueError: Unsupported communication backend: mpi",
    ),
    launch_fault(
        "cp-comm-list",
        "CP005",
        r"Length of cp_comm_type \(\d+\) should equal",
        "the list of communication types does not have one entry per layer",
        "AssertionError: Length of cp_comm_type (2) should equal to the total number of transformer layers (4)!",
        "AssertionError: Length of window_size (2) should equal to 4",
    ),
    launch_fault(
        "cp-local-attention",
        "CP006",
        r"Context parallelism is only supported by TEDotProductAttention",
        "the attention in use is not Transformer Engine's",
        "AssertionError: Context parallelism is only supported by TEDotProductAttention!",
        "AssertionError: Sequence parallelism is only supported by TELinear!",
    ),
    launch_fault(
        "cp-a2a-heads",
        "CP007",
        r"requires num_heads % cp_size == 0|number of attention heads needs to be divisible by CP size",
        "a2a: a rank's attention heads are not divisible by the context-parallel size",
        "AssertionError: cp_comm_type='a2a' requires num_heads % cp_size == 0 for Q, K, V. Found num_heads_q = 3",
        "AssertionError: num_heads % tp_size must be 0",
    ),
    launch_fault(
        "cp-gqa-tp",
        "CP008",
        r"num_query_groups \(\d+\) must be a multiple or divisor of tensor_model_parallel_size",
        "neither the number of KV heads nor the tensor-parallel size is a multiple of the other",
        "ValueError: num_query_groups (3) must be a multiple or divisor of tensor_model_parallel_size (4).",
        "ValueError: num_query_groups (3) must be positive",
    ),
    launch_fault(
        "cp-padding-mask",
        "CP012",
        r"Padding mask not supported with context parallelism",
        "context parallelism does not support a padding mask",
        "AssertionError: Padding mask not supported with context parallelism!",
        "AssertionError: Padding mask not supported with FlashAttention",
    ),
    launch_fault(
        "cp-fp8",
        "CP014",
        r"FP8 is only supported with Fused Attention|Amax reduction across TP\+CP group is necessary",
        "FP8 attention with context parallelism: wrong backend or amax reduction",
        "AssertionError: FP8 is only supported with Fused Attention!",
        "AssertionError: FP8 is only supported on Hopper",
    ),
    launch_fault(
        "fp8-shape",
        "CP003",
        r"FP8 execution requires the product of all dimensions|MXFP8 requires tensor dims that are divisible",
        "FP8: a rank's tokens do not fill whole blocks",
        "AssertionError: FP8 execution requires the product of all dimensions except the last to be divisible by 8 and "
        "the last dimension to be divisible by 16, but got tensor with dims=[4092, 4096]",
        "AssertionError: FP8 execution requires a GPU",
    ),
    launch_fault(
        "cp-batch-invariant",
        "CP018",
        r"Batch invariant mode does not support context parallelism",
        "batch-invariant mode does not support context parallelism",
        "ValueError: Batch invariant mode does not support context parallelism",
        "ValueError: Batch invariant mode does not support dropout",
    ),
    launch_fault(
        "attention-backend",
        "ENV005",
        r"No dot product attention (?:backend is available|support)",
        "Transformer Engine has no attention backend for this combination (window, sinks, bias, packing, FP8, "
        "an NVTE_* switch)",
        "ValueError: No dot product attention backend is available for the provided inputs. Please run with",
        "ValueError: No attention backend named foo",
        "hcp check {launch}",
        _BACKENDS,
    ),
)
