"""Known bugs of megatron-core in special layers, and in how packed rows reach all layers."""

from __future__ import annotations

from megatron_hcp.rules.known.row import Known, register_rows
from megatron_hcp.rules.rule import Example, Fix
from megatron_hcp.rules.upstream import (
    CORE_ATTENTION,
    EXTENSION_TE,
    GATED_DELTA_NET,
    MAMBA_BLOCK,
    MULTI_TOKEN_PREDICTION,
    ROTARY_POS_EMBEDDING,
    SCHEDULES,
    TRAINING_UTILS,
)

_HYBRID = "--hybrid-override-pattern M*M*M*M* --num-layers 8 --pipeline-model-parallel-size 2"
_SFT = "--sft --no-create-attention-mask-in-dataloader --micro-batch-size 1"
_UNEVEN = Known(
    "KNOWN045",
    "mcore",
    "<0.16.1",
    when="hybrid_pattern != null and pp > 1 and first_stage_layers > 0",
    title="A hybrid model's first stage has as many layers as requested",
    why="A hybrid stack gives each stage num_layers // pp layers whatever is requested, but its attention layers count "
    "their numbers from the requested sizes. What is left after the division is built on no stage.",
    symptom="a hybrid model's stages ignore the numbers of layers asked for: layers are silently misnumbered or left "
    "out, and named wrongly in checkpoints",
    issue="NVIDIA/Megatron-LM#3399",
    outcome="error silent never",
    source=(
        MAMBA_BLOCK.says(
            "MambaStack._select_layers_for_pipeline_parallel",
            absent="num_layers_in_first_pipeline_stage",
            versions=">=0.12,<0.16.1",
        ),
    ),
    launch=Example("mlm", f"{_HYBRID} --decoder-first-pipeline-num-layers 2"),
    instead="stages of equal size",
    fixes=(Fix({"first_stage_layers": None, "last_stage_layers": None}, "stages of equal size"),),
)

ROWS: tuple[Known, ...] = (
    Known(
        "KNOWN044",
        "mcore",
        ">=0.14,<0.18",
        when="mtp_layers > 0 and thd and recompute_granularity = full and recompute_method = uniform and fp8 = null",
        title="Multi-token prediction can recompute packed rows",
        why="The layers of multi-token prediction hand all arguments to the checkpoint, which saves only tensors; the "
        "boundaries of packed rows are an object.",
        symptom="recomputing the layers of multi-token prediction fails on packed rows: save_for_backward can only "
        "save variables",
        issue="NVIDIA/Megatron-LM#4593",
        outcome="error crash first-forward",
        source=(
            MULTI_TOKEN_PREDICTION.says(
                "MultiTokenPredictionLayer._checkpointed_forward", "*args, *kwargs.values()", ">=0.14,<0.18"
            ),
        ),
        launch=Example(
            "bridge",
            "model.mtp_num_layers=1 model.recompute_granularity=full model.recompute_method=uniform "
            "model.recompute_num_layers=1 train.micro_batch_size=1 model.fp8=null "
            "dataset.packed_sequence_specs.packed_sequence_size=4096",
            "bridge=0.5.1 vision=true",  # whose step passes the mask that MTP002 is about
        ),
        instead="selective recomputation",
        mended_by=("slime",),  # its patch rewrites _checkpointed_forward to pass only tensors
        fixes=(
            Fix(
                {"recompute_granularity": "selective", "recompute_method": None, "recompute_num_layers": None},
                "selective recomputation",
            ),
        ),
    ),
    _UNEVEN,
    _UNEVEN._replace(
        id="KNOWN046",
        when="hybrid_pattern != null and pp > 1 and first_stage_layers = null and last_stage_layers > 0",
        title="A hybrid model's last stage has as many layers as requested",
        launch=Example("mlm", f"{_HYBRID} --decoder-last-pipeline-num-layers 2"),
    ),
    Known(
        "KNOWN047",
        "mcore",
        "<0.18",
        when="attention_variant in gated_delta_net gdn and thd",
        title="Gated delta nets accept packed rows",
        why="Their state would run on from one sequence into the next; 0.18 splits the row into its sequences.",
        symptom="gated delta nets reject packed rows: GDN does not support packed sequence for now",
        issue="NVIDIA/Megatron-LM#2645",
        outcome="error crash first-forward",
        source=(
            GATED_DELTA_NET.says(
                "GatedDeltaNet.forward", "GDN does not support packed sequence for now.", ">=0.16,<0.18"
            ),
        ),
        launch=Example(
            "mlm", f"{_SFT} --experimental-attention-variant gated_delta_net --linear-attention-freq 4", "mcore=0.16.1"
        ),
        instead="rows of one sequence",
    ),
    Known(
        "KNOWN048",
        "mcore",
        ">=0.16,<0.17",
        when="attention_output_gate and kv_heads < tp",
        title="The gate on the attention's output is split like the heads",
        why="Where ranks share a KV head, each keeps its part of the queries. The gate keeps those of all ranks that "
        "share the head.",
        symptom="the gate has more heads than the attention's output, because ranks share KV heads: the first forward "
        "pass fails",
        issue="NVIDIA/Megatron-LM#3575",
        outcome="error crash first-forward",
        source=(
            CORE_ATTENTION.says(
                "SelfAttention.get_query_key_value_tensors", absent="gate = gate[:, :, idx", versions=">=0.16,<0.17"
            ),
        ),
        launch=Example(
            "mlm",
            "--tensor-model-parallel-size 4 --num-attention-heads 16 --group-query-attention --num-query-groups 2 "
            "--attention-output-gate",
        ),
        instead="as many tensor-parallel ranks as KV heads, or fewer",
    ),
    Known(
        "KNOWN049",
        "mcore",
        ">=0.16,<0.19",
        when="attention_variant = dsa and dsa_indexer_loss_coeff != null and dsa_indexer_loss_coeff != 0",
        title="The indexer's loss is averaged over the micro-batches",
        why="The scale of the indexer's loss is never set, so it stays 1: its gradient is summed over micro-batches "
        "and not multiplied by the CP size, unlike the main loss's.",
        symptom="the gradient of the indexer's loss grows with the number of micro-batches: its weight isn't "
        "dsa_indexer_loss_coeff",
        issue="NVIDIA/Megatron-LM#4070",
        outcome="warning silent never",
        source=(SCHEDULES.says("forward_step_calc_loss", absent="DSAIndexerLossAutoScaler", versions=">=0.16,<0.19"),),
        launch=Example(
            "mlm",
            "--experimental-attention-variant dsa "
            "--disable-bias-linear --multi-latent-attention --dsa-indexer-loss-coeff 0.01",
        ),
        instead="dsa_indexer_loss_coeff divided by the number of micro-batches",
    ),
    Known(
        "KNOWN050",
        "mcore",
        "<0.13",
        when="position_embedding_type = mrope and cp > 1",
        title="Multimodal rotary positions are split for CP along the sequence",
        why="MultimodalRotaryEmbedding splits its embedding along the batch instead.",
        symptom="multimodal rotary positions are split along the batch: the view fails, or every rank gets wrong "
        "positions",
        issue="MultimodalRotaryEmbedding.forward, get_pos_emb_on_this_cp_rank",
        outcome="error crash first-forward",
        source=(
            ROTARY_POS_EMBEDDING.says(
                "MultimodalRotaryEmbedding.forward", "get_pos_emb_on_this_cp_rank(emb, 1)", ">=0.12,<0.13"
            ),
        ),
        launch=Example("mlm", "--context-parallel-size 2 --position-embedding-type mrope"),
        fixes=(Fix({"cp": 1}, "no context parallelism"),),
    ),
    Known(
        "KNOWN051",
        "mcore",
        ">=0.16,<0.19",
        when="log_max_attention_logit and not qk_clip",
        title="Logging the maximum attention logit frees each step's graph",
        why="The running maximum is kept with its autograd graph, and only QK clipping resets it: the activations of "
        "every forward pass stay in memory.",
        symptom="logging the maximum attention logit without qk_clip keeps the activations of every step: the job runs "
        "out of memory after a few steps",
        issue="NVIDIA/Megatron-LM#5067, #4699",
        outcome="error oom training",
        source=(
            EXTENSION_TE.says(
                "TEDotProductAttention.forward", absent="batch_max_attention_logits.detach()", versions=">=0.16,<0.19"
            ),
        ),
        launch=Example("mlm", "--log-max-attention-logit"),
        instead="no log_max_attention_logit",
        fixes=(Fix({"log_max_attention_logit": False}, "no log of the maximum logit"),),
    ),
    Known(
        "KNOWN052",
        "mcore",
        "<0.17",
        when="packing = sft and tp > 1 and not hybrid_context_parallel",
        title="Tensor-parallel ranks take part in the same broadcasts of packed rows",
        why="Since 0.16 --sft packs. The first rank sends max_seqlen; the others have allocated nothing for it and "
        "skip the broadcast. From then on their broadcasts are one behind.",
        symptom="the tensor-parallel ranks don't receive max_seqlen and fall one broadcast behind the first: the "
        "first batch hangs, or is garbage",
        issue="NVIDIA/Megatron-LM#3268",
        outcome="error hang never",
        source=(
            TRAINING_UTILS.says(
                "get_batch_on_this_tp_rank", "_broadcast_cu_seqlens(batch['cu_seqlens'])", ">=0.16,<0.17"
            ),
        ),
        launch=Example("mlm", f"{_SFT} --tensor-model-parallel-size 2 --num-attention-heads 8", "mcore=0.16.1"),
        instead="no tensor parallelism",
        fixes=(Fix({"tp": 1}, "no tensor parallelism"),),
    ),
)

register_rows(ROWS, __name__)
