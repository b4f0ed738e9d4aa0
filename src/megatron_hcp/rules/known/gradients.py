"""Known bugs in megatron-core that leave gradients, or their norm, incomplete on some ranks."""

from __future__ import annotations

from megatron_hcp.rules.known.row import Known, register_rows
from megatron_hcp.rules.rule import Example, Fix
from megatron_hcp.rules.upstream import (
    CORE_DOT_PRODUCT_ATTENTION,
    DDP,
    EXTENSION_TE,
    FINALIZE_MODEL_GRADS,
    GPT_MODEL,
    MULTI_LATENT_ATTENTION,
    MULTI_TOKEN_PREDICTION,
    TE_GROUPED_LINEAR,
    TENSOR_PARALLEL_LAYERS,
)

_TP = "--tensor-model-parallel-size 2 --num-attention-heads 8 "
_MLA = f"{_TP}--multi-latent-attention "
_GDN = f"{_TP}--experimental-attention-variant gated_delta_net --linear-attention-freq 4 "
_EXPERTS = (
    f"{_TP}--sequence-parallel --num-experts 8 "
    "--disable-bias-linear --expert-model-parallel-size 1 --expert-tensor-parallel-size "
)
_GROUPED = (
    f"{_TP}--sequence-parallel --num-experts 8 --disable-bias-linear --expert-model-parallel-size 2 --moe-grouped-gemm"
)
_MTP = "--context-parallel-size 2 --mtp-num-layers 1 --position-embedding-type rope"
_MEAN_OF_MTP = Known(
    "KNOWN117",
    "mcore",
    ">=0.17,<0.20",
    when="mtp_layers > 0 and cp > 1",
    title="Multi-token prediction averages over the tokens of all CP ranks",
    why="Its loss is divided by the number of tokens that count on this CP rank. Ranks whose masks differ (the last "
    "token, padding, prompts) weigh their tokens differently; upstream's comment says so. Upstream's own step on CPUs "
    "differs from the one without CP by 1 % in some weights at 32 tokens per rank, and with the counts of the CP "
    "group by nothing. The difference shrinks with the length, unless masks are uneven.",
    symptom="multi-token prediction's loss is a mean per CP rank: its gradients differ slightly from those without CP, "
    "more where whole ranks hold padding or prompts",
    issue="multi_token_prediction.py, num_tokens_safe",
    outcome="info note never",
    source=(
        MULTI_TOKEN_PREDICTION.says(
            "process_mtp_loss", "original_num_tokens / num_tokens_safe", ">=0.17,<0.20", branches=("main", "dev")
        ),
    ),
    launch=Example("mlm", _MTP),
    instead="no multi-token prediction",
)
_SHARDED = (
    "--num-experts 8 --disable-bias-linear --expert-model-parallel-size 2 --tensor-parallel-num-weight-shards 2 "
    "--expert-tensor-parallel-num-weight-shards "
)
_WITHOUT_TP = Fix({"tp": 1}, "no tensor parallelism")
_SEQUENCE_PARALLEL = Fix({"sequence_parallel": True}, "activations split over the tensor-parallel ranks")

ROWS: tuple[Known, ...] = (
    _MEAN_OF_MTP,
    _MEAN_OF_MTP._replace(
        id="KNOWN118",
        versions=">=0.14,<0.17",
        when="mtp_layers > 0 and cp > 1 and not calculate_per_token_loss",
        title="Multi-token prediction averages over all ranks without per-token loss",
        issue="gpt_model.py, mtp_loss_scale",
        source=(GPT_MODEL.says("GPTModel._postprocess", "mtp_loss_scale * mtp_loss / num_tokens", ">=0.14,<0.17"),),
        good=Example("mlm", f"{_MTP} --calculate-per-token-loss", "mcore=0.16.1"),
        instead="calculate_per_token_loss",
    ),
    Known(
        "KNOWN030",
        "mcore",
        ">=0.14",
        when="mla and tp > 1 and not sequence_parallel",
        title="Without sequence parallelism, MLA's rotary keys get all heads' gradient",
        why="All heads share one rotary key. Each tensor-parallel rank computes its gradient from its own heads; only "
        "sequence parallelism sums these. Without it, the rotary rows of linear_kv_down_proj and the layer's "
        "input get a different, incomplete gradient on each rank. Seen with upstream's layer on CPUs (gloo), "
        "2 ranks: 1 to 3 % of the input's gradient is wrong in each layer; exact with sequence parallelism.",
        symptom="without sequence parallelism, the gradient of MLA's rotary keys lacks the other ranks' heads: copies "
        "of the same weights silently drift apart",
        issue="multi_latent_attention.py, k_pos_emb",
        outcome="error silent never",
        source=(
            MULTI_LATENT_ATTENTION.says(
                "MLASelfAttention.get_query_key_value_tensors",
                "k_pos_emb = gather_from_sequence_parallel_region(k_pos_emb",
                ">=0.14",
            ),
        ),
        launch=Example("mlm", _MLA, "mcore=0.17"),  # where KNOWN032 is fixed
        good=Example("mlm", f"{_MLA}--sequence-parallel", "mcore=0.17"),
        instead="sequence_parallel",
        fixes=(_SEQUENCE_PARALLEL, _WITHOUT_TP),
    ),
    Known(
        "KNOWN031",
        "mcore",
        "<0.14",
        when="mla and tp > 1",
        title="Gathered from TP ranks, MLA's rotary keys get all heads' gradient",
        why="The down projections are split over the tensor-parallel ranks and their output is gathered. The backward "
        "pass of the gather takes a slice and sums nothing, so the rotary key, which all heads share, gets the "
        "gradient of one rank's heads, with or without sequence parallelism. Seen with upstream's layer on CPUs.",
        symptom="the gradient of MLA's rotary keys covers the heads of one rank only: these weights and everything "
        "below the layer train on incomplete gradients",
        issue="multi_latent_attention.py, k_pos_emb",
        outcome="error silent never",
        source=(
            MULTI_LATENT_ATTENTION.says(
                "MLASelfAttention.get_query_key_value_tensors",
                "gather_from_tensor_model_parallel_region(kv_combined)",
                ">=0.12,<0.14",
            ),
        ),
        launch=Example("mlm", f"{_MLA}--sequence-parallel"),
        good=Example("mlm", f"{_MLA}--sequence-parallel", "mcore=0.17"),
        instead="no tensor parallelism",
        fixes=(_WITHOUT_TP,),
    ),
    Known(
        "KNOWN032",
        "mcore",
        ">=0.14,<0.17",
        when="mla and tp > 1",
        title="MLA's replicated weights count once in the gradient norm",
        why="Since 0.14 every tensor-parallel rank holds the whole down projections. Transformer Engine marks all its "
        "weights as tensor-parallel, and what is so marked is counted on every rank. ROCm measured a norm 1.36 "
        "times too large for DeepSeek-V3 at TP 8.",
        symptom="MLA's down projections are counted on each tensor-parallel rank: the gradient norm is too large, and "
        "clipping scales gradients down more than it should",
        issue="ROCm/TransformerEngine#715",
        outcome="warning silent never",
        source=(
            EXTENSION_TE.says("TELinear.__init__", absent='"tensor_model_parallel", False', versions=">=0.14,<0.17"),
        ),
        launch=Example("mlm", f"{_MLA}--sequence-parallel"),
        instead="a larger clip_grad",
    ),
    Known(
        "KNOWN033",
        "mcore",
        "<0.19",
        when="num_experts > 1 and ep = 1 and etp < tp",
        title="Experts that every tensor-parallel rank holds share their gradients",
        why="Each rank holds all experts and feeds them its own part of the sequence. Their gradients are reduced over "
        "the data-parallel ranks of the dense layers, which leave out the tensor-parallel ones: copies of an expert "
        "get different gradients and drift apart. Seen with upstream's layer and gradient reduction on CPUs (gloo), "
        "0.13 to 0.18; in 0.19 the copies agree with the whole gradient.",
        symptom="each tensor-parallel rank trains its own copy of the experts on its part of the sequence: the copies "
        "silently drift apart, and a checkpoint keeps one of them",
        issue="NVIDIA/Megatron-LM#5916",
        outcome="error silent never",
        source=(
            TENSOR_PARALLEL_LAYERS.says(
                "ColumnParallelLinear.__init__", "not (self.is_expert and self.expert_parallel)", ">=0.12,<0.19"
            ),
        ),
        launch=Example("mlm", f"{_EXPERTS}1"),
        instead="expert_tensor_parallel_size = tensor_model_parallel_size, or expert parallelism",
        fixes=(Fix({"etp": None}, "experts split like the dense layers"),),
    ),
    Known(
        "KNOWN034",
        "mcore",
        "<0.19",
        when="num_experts > 1 and tp > 1 and moe_grouped_gemm and te >= 2.13",
        title="The gradient norm includes the experts of every rank",
        why="Grouped experts aren't marked as tensor-parallel from Transformer Engine 2.13 on, so they count as copies "
        "and only those of the first tensor-parallel rank enter the norm, although the other ranks hold other "
        "experts or other parts of them. Seen on a CPU: 2.10 marks the weights that its class builds, 2.14 doesn't.",
        symptom="the gradient norm counts the experts of the first tensor-parallel rank alone: it is too small, and "
        "gradients are clipped less than asked",
        issue="NVIDIA/Megatron-LM#5916",
        outcome="warning silent never",
        source=(
            TENSOR_PARALLEL_LAYERS.says(
                "param_is_not_tensor_parallel_duplicate", absent="expert_tp_group", versions=">=0.12,<0.19"
            ),
            TE_GROUPED_LINEAR.says(
                "GroupedLinear.reset_parameters", absent="set_tensor_model_parallel_attributes", versions=">=2.14"
            ),
        ),
        launch=Example("mlm", _GROUPED, "te=2.14"),
        instead="clip_grad set lower by that much",
    ),
    Known(
        "KNOWN035",
        "mcore",
        ">=0.16",
        when="attention_variant in gated_delta_net gdn gdn2 and tp > 1 and not sequence_parallel",
        title="The output norm of a gated delta net gets the gradient of every head",
        why="One norm weight serves all heads, which are split over the tensor-parallel ranks. Its gradient is summed "
        "over them only if the weight is marked for sequence parallelism.",
        symptom="without sequence parallelism, each TP rank trains a copy of the output norm on its own heads: the "
        "copies silently drift apart, and a checkpoint keeps one",
        issue="NVIDIA/Megatron-LM#7452",
        outcome="warning silent never",
        source=(
            FINALIZE_MODEL_GRADS.says(
                "_allreduce_non_tensor_model_parallel_grads",
                'config.sequence_parallel and getattr(param, "sequence_parallel", False)',
                ">=0.16",
            ),
        ),
        launch=Example("mlm", _GDN),
        good=Example("mlm", f"{_GDN}--sequence-parallel", "mcore=0.17"),
        instead="sequence_parallel",
        fixes=(_SEQUENCE_PARALLEL, _WITHOUT_TP),
    ),
    Known(
        "KNOWN036",
        "mcore",
        ">=0.15",
        when="softmax_type = learnable and tp > 1",
        title="The gradient norm includes the sinks of every head",
        why="Sinks are split over the tensor-parallel ranks with their heads but not marked as such, so they count as "
        "copies: only the first rank's enter the norm. They are one number per head, so the norm changes little.",
        symptom="learnt sinks of all tensor-parallel ranks but the first are left out of the gradient norm",
        issue="NVIDIA/Megatron-LM#7452, #7530",
        outcome="info note never",
        source=(
            CORE_DOT_PRODUCT_ATTENTION.says(
                "DotProductAttention.__init__", absent="set_tensor_model_parallel_attributes", versions=">=0.15"
            ),
        ),
        launch=Example("mlm", f"{_TP}--softmax-type learnable"),
        good=Example("mlm", f"{_TP}--softmax-type off-by-one", "mcore=0.17"),
        instead="nothing to be done: the effect on clipping is small",
    ),
    Known(
        "KNOWN038",
        "mcore",
        ">=0.19,<0.20",
        when="num_experts > 1 and ep > 1 and gtp <> egtp and not calculate_per_token_loss",
        title="Experts' gradients are averaged over as many ranks as the others",
        why="Weight shards leave gtp times fewer data-parallel ranks to divide by. The gradients of dense weights are "
        "averaged over the gtp ranks afterwards, those of experts over the egtp ranks only. Seen with upstream's "
        "layer and gradient reduction on CPUs (gloo): exactly gtp/egtp times too large.",
        symptom="the experts' gradients are gtp/egtp times what they should be: so is their share of the gradient "
        "norm, and clipping then scales the other gradients wrongly",
        issue="NVIDIA/Megatron-LM#7165",
        outcome="warning silent never",
        source=(
            DDP.says(
                "DistributedDataParallel.__init__",
                "expert_gradient_scaling_factor = 1.0 / data_parallel_world_size",
                ">=0.19,<0.20",
                branches=("main",),
            ),
        ),
        launch=Example("mlm", f"{_SHARDED}1"),
        good=Example("mlm", f"{_SHARDED}2", "mcore=0.19"),
        instead="expert weight shards in the ratio of the other weights' to TP, or calculate_per_token_loss",
        fixes=(
            Fix({"weight_shards": None, "expert_weight_shards": None}, "no weight shards beyond tensor parallelism"),
        ),
    ),
)

register_rows(ROWS, __name__)
