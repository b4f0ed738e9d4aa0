"""What models and frameworks beside plain attention say when they meet context parallelism."""

from __future__ import annotations

from megatron_hcp.triage.signatures.row import Signature, fault, launch_fault

MODELS: tuple[Signature, ...] = (
    fault(
        "gdn-cp",
        r"[Gg]ated delta net does not support context parallel|"
        r"GatedDeltaNet\.__init__\(\) got an unexpected keyword argument 'cp_comm_type'|"
        r"cannot import name 'tensor_a2a_(?:cp2hp|hp2cp)'",
        "this megatron-core has no context parallelism for gated delta net layers (Qwen3-Next, Qwen3.5), or "
        "does not accept cp_comm_type for them (0.18)",
        "hcp check {launch} --select KNOWN003,MODEL003",
        "use a megatron-core whose GatedDeltaNet has context parallelism (#2642; #4374 fixes cp_comm_type)",
        rule="KNOWN003",
    ),
    launch_fault(
        "gdn-heads",
        "MODEL003",
        r"must be divisible by cp_size \d{1,6} for GDN",
        "the heads of a gated delta net are not divisible by the context-parallel size",
    ),
    launch_fault(
        "dsa-comm",
        "MODEL002",
        r"DSAttention context parallelism currently supports",
        "DeepSeek's sparse attention supports context parallelism only with cp_comm_type allgather",
    ),
    launch_fault(
        "mtp-cp",
        "CP026",
        r"(?:\(MTP\)|[Mm]ulti.[Tt]oken [Pp]rediction) (?:is not supported|does not support).{0,8}context parallel",
        "this Megatron-LM does not support multi-token prediction with context parallelism",
    ),
    launch_fault(
        "bridge-packed-mask",
        "KNOWN010",
        r"^IndexError: (?:Dimension out of range|index \d+ is out of bounds)",
        "Megatron-Bridge before 0.5.1 wrongly splits the placeholder mask of packed rows across context-parallel ranks",
        "use Megatron-Bridge 0.5.1 or newer",
        context=r"_partition_packed_batch_for_cp",
    ),
    fault(
        "slime-max-tokens",
        r"^AssertionError: This should never happen|AssertionError\('This should never happen",
        "a sample is longer than max_tokens_per_gpu x CP, so it fits into no micro-batch",
        "raise --max-tokens-per-gpu or the context-parallel size, or drop longer samples",
        context=r"seqlen_balancing|_get_capped_partitions|max_tokens_per_gpu",
    ),
    launch_fault(
        "cp-backend",
        "ENV005",
        r"Context parallelism is only implemented with Flash ?Attention and Fused ?Attention|"
        r"Context Parallelism is supported only with TE|"
        r"Only Transformer-Engine version .{1,12} supports context parallelism",
        "no attention backend that supports context parallelism accepts these inputs (types, mask, head size,"
        " an NVTE_* switch)",
        "run again with NVTE_DEBUG=1 NVTE_DEBUG_LEVEL=2: Transformer Engine then says why each backend was dropped",
    ),
    fault(
        "moe-mask-sp",
        r"^RuntimeError: The size of tensor a \((?P<a>\d+)\) must match the size of tensor b \((?P<b>\d+)\)",
        "the router's padding mask is not split across the sequence-parallel ranks: {a} tokens, but a mask of {b}",
        "use a Megatron-LM that splits it, or train without the padding mask (packed rows without padding)",
        context=r"compute_routing_scores_for_aux_loss|_apply_expert_bias|apply_z_loss",
    ),
    fault(
        "slice-mismatch",
        r"^RuntimeError: The size of tensor a \((?P<a>\d+)\) must match the size of tensor b \((?P<b>\d+)\)|"
        r"^RuntimeError: The expanded size of the tensor \((?P<a2>\d+)\) must match the existing size "
        r"\((?P<b2>\d+)\)",
        "two tensors in attention or its positions differ in length, {a}{a2} and {b}{b2}; if one is a "
        "multiple of the other, only one of them is split across the context- or sequence-parallel ranks",
        "hcp check {launch}",
        "hcp support config.json says whether this model has context parallelism in this release",
        "run once with context_parallel_size 1: does it pass?",
        context=r"_rotary_pos_emb|rope_utils|get_full_mask|get_batch_on_this_cp_rank|context_parallel\.py|"
        r"_embeddings?_for_cp|split_\w{0,20}_cp|thd_get_partitioned",
    ),
    fault(
        "cudnn-attention",
        r"cuDNN Error: |mha_graph->|CUDNN_STATUS_(?!SUCCESS)[A-Z]|\[cudnn_frontend\] Error",
        "cuDNN rejected this attention, or failed in it",
        "does the loaded cuDNN match Transformer Engine (LD_LIBRARY_PATH, nvidia-cudnn-cu12)?",
        "run once with NVTE_FUSED_ATTN=0, and with CUDNN_LOGERR_DBG=1 CUDNN_LOGDEST_DBG=stderr",
    ),
)
"""These come before the rows of attention, whose texts some of them share."""

REFUSED: tuple[Signature, ...] = (
    fault(
        "cp-refused",
        r"^(?:[A-Za-z_]\w*\.)*(?:AssertionError|ValueError|NotImplementedError|RuntimeError): (?P<text>.{0,300}"
        r"(?:[Cc]ontext[ _-]?[Pp]arallel|\bCP ?(?:>|size|is|does)|cp_size|cp_comm_type).*)$",
        "the program rejects this launch: {text}",
        "hcp check {launch}",
    ),
    fault(
        "too-few-ranks",
        r"^(?:AssertionError|ValueError|RuntimeError): (?P<text>.{0,200}(?:exceeds [^\w\s]{0,2}world[_ ]size|"
        r"world[_ ]size\W.{0,40}(?:less|smaller) than).*)$",
        "the parallel sizes need more ranks than the job has: {text}",
        "hcp check {launch}",
    ),
    fault(
        "group-missing",
        r"^(?:AssertionError|RuntimeError|ValueError): (?P<group>[\w -]{1,80}) groups? (?:is|are) not initialized",
        "the {group} group does not exist: the model was built for a parallel size that was not set up at start",
        "hcp check {launch}",
    ),
    fault(
        "arguments-refused",
        r"^(?:AssertionError|ValueError|NotImplementedError): (?P<text>.+)$",
        "the program rejects its arguments: {text}",
        "hcp check {launch}",
        context=r"\bin (?:validate_args|validate_config|_?validate\w{0,40}|core_transformer_config_from_args|"
        r"parse_and_validate_args|__post_init__|finalize)\n(?:[^\n]*\n){0,7}[^\n]*\Z",
        role="general",
    ),
    fault(
        "size-divides",
        r"^(?:[A-Za-z_]\w*\.)*(?:AssertionError|ValueError|RuntimeError): "
        r"(?!.{0,200}\b(?:data-type|element|item) ?size\b)(?P<text>.{0,300}"  # of a file or a buffer
        r"\b(?:divisible by|(?:not|be) a multiple of).*)$",
        "a size in the launch is not divisible: {text}",
        "hcp check {launch}",
    ),
)
"""What no row knows by itself: the program's own words say enough. These come before the rows for any exception."""
