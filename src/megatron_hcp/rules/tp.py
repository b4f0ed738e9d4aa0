"""Tensor parallelism: what must be divisible by it."""

from __future__ import annotations

from megatron_hcp.core.fits import undivided_width
from megatron_hcp.rules.cp.view import nearest_divisors, over, tp_fixes
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import ARGUMENTS, TENSOR_PARALLEL_LAYERS, TRANSFORMER_CONFIG
from megatron_hcp.rules.view import View

_DISTRIBUTED = (
    "--distribute-saved-activations --recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
)


@rule(
    "TP001",
    "error crash config",
    source=(
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__",
            "self.num_attention_heads % self.tensor_model_parallel_size != 0",
            ">=0.12",
        ),
    ),
    applies=lambda v: v.get("tp") != 1 and v.tp > 1,
    good=Example(
        "mlm",
        "--num-attention-heads 32 --group-query-attention --num-query-groups 4 --tensor-model-parallel-size 8",
        "mcore=0.16.1",
    ),
    bad=Example(
        "mlm",
        "--num-attention-heads 20 --group-query-attention --num-query-groups 4 --tensor-model-parallel-size 8",
        "mcore=0.16.1",
    ),
)
def tp_divides_heads(v: View) -> Problem | None:
    """Tensor parallelism divides the attention heads.

    Each TP rank holds a whole number of query heads; megatron-core's config constructor checks it.
    """
    if v.heads % v.tp == 0:
        return None
    return Problem(
        message="the config constructor fails: the heads cannot be split over the TP ranks",
        found=f"{v.heads} attention heads at tensor_model_parallel_size {v.tp}",
        wanted=f"a tensor_model_parallel_size that divides {v.heads}",
        facts=("tp", "heads"),
        fixes=tp_fixes(v),
    )


@rule(
    "TP002",
    "error crash config",
    source=(ARGUMENTS.says("validate_args", "can happen only when sequence parallelism is enabled", ">=0.12"),),
    applies=lambda v: v.dialect == "mlm" and bool(v.get("tp_comm_overlap")),
    good=Example("mlm", "--tp-comm-overlap --tensor-model-parallel-size 2 --sequence-parallel"),
    bad=Example("mlm", "--tp-comm-overlap --tensor-model-parallel-size 2"),
)
def tp_overlap_has_sequence_parallelism(v: View) -> Problem | None:
    """Overlapped TP communication is used with sequence parallelism.

    Megatron-LM's command line asserts this, and switches sequence parallelism off if there is only one tensor-parallel
    rank. Bridge switches the overlap off instead.
    """
    if v.tp > 1 and v.sequence_parallel:
        return None
    off = Fix({"tp_comm_overlap": False}, "no overlap")
    on = Fix({"sequence_parallel": True}, "activations split over the tensor-parallel ranks")
    return Problem(
        message="Megatron-LM overlaps only the communication of sequence parallelism: the launch fails",
        found="tp_comm_overlap "
        + (f"at tensor_model_parallel_size {v.tp}" if v.tp == 1 else "without sequence_parallel"),
        wanted="tensor and sequence parallelism",
        facts=("tp_comm_overlap", "sequence_parallel", "tp"),
        fixes=(on, off),
    )


@rule(
    "TP003",
    "error crash config",
    source=(
        ARGUMENTS.says("validate_args", "'recomputed activations only across tensor model '", ">=0.12"),
        ARGUMENTS.says("validate_args", "'distributed recompute activations is only '", ">=0.12"),
        TRANSFORMER_CONFIG.says("TransformerConfig.__post_init__", "false when sequence parallel is enabled", ">=0.12"),
    ),
    applies=lambda v: bool(v.get("distribute_saved_activations")),
    good=Example("mlm", f"{_DISTRIBUTED} --tensor-model-parallel-size 2"),
    bad=Example("mlm", _DISTRIBUTED),
    recipe_settled=True,
)
def saved_activations_have_ranks_to_go_to(v: View) -> Problem | None:
    """Saved activations are distributed only over TP ranks that hold all.

    A single rank has no other to share with, and only full recomputation saves what can be shared (Megatron-LM's
    command line asserts both); with sequence parallelism activations are already split, and the config constructor
    rejects the option.
    """
    if v.dialect == "mlm" and v.tp == 1:
        found = "tensor_model_parallel_size 1"
    elif v.dialect == "mlm" and v.recompute_granularity != "full":
        found = f"{v.recompute_granularity or 'no'} recomputation"
    elif v.tp > 1 and v.sequence_parallel and v.get("recompute_granularity") is not None:
        found = "sequence_parallel"
    else:
        return None
    return Problem(
        message="there is nothing to distribute: start-up fails",
        found=f"distribute_saved_activations with {found}",
        wanted="full recomputation and tensor parallelism without sequence parallelism, or no such distribution",
        facts=("distribute_saved_activations", "tp", "sequence_parallel", "recompute_granularity"),
        fixes=(Fix({"distribute_saved_activations": False}, "each rank keeps its own"),),
    )


def _widths(v: View) -> dict[str, dict[str, int | None]]:
    """What tensor and expert tensor parallelism split: the MLP, if a layer has one, and the experts."""
    if not v.num_experts:
        return {"tp": {"ffn_hidden_size": v.ffn_hidden_size}}
    dense = {"moe_shared_expert_intermediate_size": v.moe_shared_expert_intermediate_size}
    layers = v.get("moe_layer_freq")
    if isinstance(layers, list | tuple) and 0 in layers:
        dense["ffn_hidden_size"] = v.ffn_hidden_size
    return {"tp": dense, "etp": {"moe_ffn_hidden_size": v.moe_ffn_hidden_size}}


@rule(
    "TP004",
    "error crash init",
    source=(TENSOR_PARALLEL_LAYERS.says("ColumnParallelLinear.__init__", "divide(output_size, world_size)", ">=0.12"),),
    applies=lambda v: v.get("tp", 1) > 1 or v.get("etp", 1) > 1,
    good=Example("mlm", "--tensor-model-parallel-size 4 --ffn-hidden-size 1024"),
    bad=Example("mlm", "--tensor-model-parallel-size 4 --ffn-hidden-size 1022"),
    recipe_settled=True,
)
def tp_divides_the_width_of_the_mlp(v: View) -> Problem | None:
    """TP divides the MLP width, and expert TP the experts' width.

    A rank holds a whole number of columns of the first matrix; the experts are split by expert tensor parallelism. The
    layer's constructor asserts this, with a message that gives two numbers but no option.
    """
    for axis, widths in _widths(v).items():
        found = undivided_width(widths, v[axis])
        if found is None:
            continue
        name, width = found
        size, kind = v[axis], "tensor" if axis == "tp" else "expert tensor"
        return Problem(
            message="building the model fails: a layer's width cannot be split evenly over the ranks",
            found=f"{name} {width} over {size} ranks of {kind} parallelism",
            wanted=f"a width that {size} divides",
            facts=(axis, name),
            fixes=tuple(Fix({axis: near}, over(kind, near)) for near in nearest_divisors(width, size)[:1]),
        )
    return None
