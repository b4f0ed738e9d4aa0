"""Known bugs in Transformer Engine."""

from __future__ import annotations

from megatron_hcp.rules.known.row import Known, register_rows
from megatron_hcp.rules.rule import Example, Fix
from megatron_hcp.rules.upstream import TE_CONTEXT_PARALLEL, TE_DOT_PRODUCT_ATTENTION

_GATHERED = (
    "--context-parallel-size 2 --cp-comm-type all_gather --sft --calculate-per-token-loss "
    "--no-create-attention-mask-in-dataloader --num-attention-heads 8 "
)
_FUSED = Fix({"attention_backend": "fused"}, "cuDNN attention")
_RING = Fix({"cp_comm_type": "p2p"}, "a ring over the whole CP group")
_FA2_VARLEN = TE_CONTEXT_PARALLEL.says(
    "AttnFuncWithCPAndKVAllGather.forward", "THD format requires padding mask type", ">=2.18"
)
_OVERLOOKS_FA2 = (
    "With all_gather a rank's queries are not contiguous in the gathered row. FlashAttention 2 gets cumulative "
    "visible lengths and has no seqused; the docstring restricts packed data to cuDNN attention and FlashAttention 3, "
    "but nothing enforces it. Seen in Transformer Engine's own code with stand-ins for its kernels on a CPU."
)
_WRONG_ROWS = "FlashAttention 2 reads the wrong rows of the gathered keys and values: attention is silently wrong"

ROWS: tuple[Known, ...] = (
    Known(
        "KNOWN017",
        "te",
        ">=2.18",
        when="cp_comm_type has all_gather and thd and flash_attn < 3 and attention_backend = flash and cp > 1",
        title="Packed data with all_gather uses cuDNN attention or FlashAttention 3",
        why=_OVERLOOKS_FA2,
        symptom=_WRONG_ROWS,
        issue="docstring of AttnFuncWithCPAndKVAllGather",
        outcome="error silent never",
        source=(_FA2_VARLEN,),
        launch=Example("mlm", _GATHERED + "--attention-backend flash", "flash_attn=2.8.3 arch=sm90"),
        good=Example("mlm", _GATHERED + "--attention-backend fused", "te=2.18 flash_attn=2.8.3 arch=sm90"),
        instead="cuDNN attention, FlashAttention 3, or p2p",
        fixes=(_FUSED, _RING),
    ),
    Known(
        "KNOWN018",
        "te",
        ">=2.18",
        when="cp_comm_type has all_gather and thd and arch = sm80 and attention_backend != fused and cp > 1",
        title="Packed data with all_gather has more than FlashAttention 2 to run on",
        why=_OVERLOOKS_FA2 + " On Ampere, FlashAttention 2 is the only choice for packed data.",
        symptom=_WRONG_ROWS,
        issue="docstring of AttnFuncWithCPAndKVAllGather",
        outcome="error silent never",
        source=(_FA2_VARLEN,),
        launch=Example("mlm", _GATHERED, "arch=sm80"),
        good=Example("mlm", _GATHERED, "te=2.18 arch=sm90"),
        instead="p2p",
        fixes=(_RING,),
    ),
    Known(
        "KNOWN019",
        "te",
        ">=2.0,<2.18",
        when="packing = offline and pad_seq_to_mult > 1 and cp_comm_type has p2p and cp > 1",
        title="Padding at the end of a packed row is detected",
        why="If sequences are padded, Bridge passes real and padded boundaries, but the comparison skips the last "
        "one: a row in which only the last sequence is padded counts as unpadded, and the ring divides its real "
        "length by the CP size.",
        symptom="a row in which only the last (tail) sequence is padded is treated as unpadded: keys are silently "
        "dropped and output rows are zero",
        issue="NVIDIA/TransformerEngine#3331",
        outcome="warning silent never",
        source=(
            TE_DOT_PRODUCT_ATTENTION.says(
                "DotProductAttention.forward",
                "torch.equal(cu_seqlens_q_padded[:-1], cu_seqlens_q[:-1])",
                ">=2.4,<2.18",
            ),
        ),
        launch=Example(
            "bridge",
            "model.context_parallel_size=2 model.cp_comm_type=p2p model.calculate_per_token_loss=true "
            "ddp.average_in_collective=false train.micro_batch_size=1 "
            "dataset.packed_sequence_specs.packed_sequence_size=4096 dataset.packed_sequence_specs.pad_seq_to_mult=4",
            "te=2.4",  # where KNOWN053 is fixed
        ),
        instead="rows of several sequences",
    ),
    Known(
        "KNOWN020",
        "te",
        ">=2.2,<2.8",
        when="flash_attn >= 3 and flash_attn < 4 and attention_backend != fused and cp > 1",
        title="FlashAttention 3 is built from the commit that Transformer Engine pins",
        why="The ring calls FlashAttention 3 with positional arguments. Newer builds have one more, seqlens_rotary, "
        "so the count no longer matches.",
        symptom="a FlashAttention 3 newer than the one that this release pins fails in the first forward pass: "
        "_flash_attn_forward() is missing v_descale",
        issue="NVIDIA/TransformerEngine#1987",
        outcome="warning crash first-forward",
        source=(TE_CONTEXT_PARALLEL.says("get_fa_args", "* 8,  # page_table", ">=2.4,<2.8"),),
        launch=Example("mlm", "--context-parallel-size 2 --attention-backend flash", "flash_attn=3.0 arch=sm90"),
        good=Example("mlm", "--context-parallel-size 2 --attention-backend flash", "flash_attn=3.0 arch=sm90 te=2.14"),
        instead="the FlashAttention 3 of commit 27f501d, or cuDNN attention",
        fixes=(_FUSED,),
    ),
    Known(
        "KNOWN021",
        "te",
        ">=1.8,<2.1",
        when="cp_comm_type has p2p and cp > 2 and env.NVTE_BATCH_MHA_P2P_COMM != 1",
        title="The ring's messages are batched where NCCL needs it",
        why="Above two ranks the ring sends and receives in separate calls. If NCCL reports errors in them, "
        "NVTE_BATCH_MHA_P2P_COMM=1 batches each pair. Later releases have the same switch.",
        symptom="the ring sends and receives in separate NCCL calls, which failed for some users: batch them if NCCL "
        "reports an error",
        issue="NVIDIA/Megatron-LM#1151",
        outcome="info note never",
        source=(TE_CONTEXT_PARALLEL.says("AttnFuncWithCPAndKVP2P.forward", "NVTE_BATCH_MHA_P2P_COMM", ">=2.4"),),
        launch=Example("mlm", "--context-parallel-size 4"),
        instead="NVTE_BATCH_MHA_P2P_COMM=1 if NCCL reports an error in the ring",
        reported_only=True,
        fixes=(Fix({"env.NVTE_BATCH_MHA_P2P_COMM": "1"}, "each send/receive pair in one call"),),
    ),
    Known(
        "KNOWN027",
        "te",
        ">=2.0,<2.18",
        when="packing = sft and cp_comm_type has p2p and cp > 1 and not hybrid_context_parallel and "
        "not dynamic_context_parallel",
        title="A custom dataset may pad the end of a packed row",
        why="Megatron-LM's --sft counts padding as part of its sequences, which is safe. A dataset that also passes "
        "cu_seqlens_padded triggers two bugs in the ring: tail padding goes undetected, and short sequences of "
        "which a rank holds only padding get NaN or huge gradients from cuDNN's backward pass.",
        symptom="a dataset that passes padded boundaries (--sft's own does not) loses keys at the tail, and short "
        "padded sequences produce NaN gradients",
        issue="NVIDIA/TransformerEngine#3331, #2186",
        outcome="info note never",
        source=(
            TE_DOT_PRODUCT_ATTENTION.says(
                "DotProductAttention.forward",
                "torch.equal(cu_seqlens_q_padded[:-1], cu_seqlens_q[:-1])",
                ">=2.4,<2.18",
            ),
        ),
        launch=Example(
            "mlm",
            "--context-parallel-size 2 --sft --calculate-per-token-loss --no-create-attention-mask-in-dataloader",
            "te=2.4",  # where KNOWN053 is fixed
        ),
        instead="padding counted as part of the sequences, as --sft does",
    ),
    Known(
        "KNOWN028",
        "te",
        ">=2.8",
        when="softmax_type = learnable and cp_comm_type has a2a and cp > 1",
        title="The gradient of a learnable sink is a per-rank share, like a weight's",
        why="The backward pass of a2a gathers the sinks' gradient, so every CP rank holds all of it; Megatron then "
        "sums it over the CP ranks as it does for a weight's shares. Seen in Transformer Engine's own code "
        "with stand-ins for its kernels on a CPU; its test compares a rank's gradient with the full one. A constant "
        "factor hardly affects Adam, but it does affect the gradient norm, clipping and SGD.",
        symptom="the gradient of the learnable sinks is summed over CP ranks that each hold all of it: it is cp times "
        "too large, and so is its share of the gradient norm",
        issue="flash_attn_a2a_communicate_softmax_offset, d_softmax_offset",
        outcome="warning silent never",
        source=(
            TE_CONTEXT_PARALLEL.says(
                "flash_attn_a2a_communicate_softmax_offset",
                "d_softmax_offset: all-gather from all ranks to all ranks",
                ">=2.8",
            ),
        ),
        launch=Example(
            "mlm",
            "--context-parallel-size 2 --cp-comm-type a2a --softmax-type learnable --num-attention-heads 8",
        ),
        good=Example(
            "mlm",
            "--context-parallel-size 2 --cp-comm-type a2a --softmax-type off-by-one --num-attention-heads 8",
            "te=2.8",
        ),
        instead="the sinks' gradient divided by the CP size before it is summed",
    ),
)

register_rows(ROWS, __name__)
