"""Pipelines of models with experts: which ranks have some."""

from __future__ import annotations

from megatron_hcp.cost.model_sizes import experts_by_layer
from megatron_hcp.rules.pipe.view import given_stages, is_pipelined, layout_of, split_layers
from megatron_hcp.rules.rule import Example, Problem, rule
from megatron_hcp.rules.upstream import MOE_UTILS, NEMO_RL_COMMON
from megatron_hcp.rules.view import View

_REPORTING = ("mlm", "bridge", "bridge-provider", "nemo-rl", "ms-swift")
"""Dialects of frameworks that log the experts' losses after each step; verl, slime and miles don't."""
_MODEL = (
    "--num-layers 4 --pipeline-model-parallel-size 2 --num-experts 8 --moe-aux-loss-coeff 0.01 --mtp-num-layers 1 "
    "--position-embedding-type rope --moe-layer-freq "
)


def _logs_experts_of_stages(v: View) -> bool:
    """Whether auxiliary losses of some layers are summed over pipeline ranks. Requests no fact."""
    layers = v.get("moe_layer_freq")
    some = isinstance(layers, list | tuple) or (type(layers) is int and layers > 1)
    if not (v.launch.dialect in _REPORTING and is_pipelined(v) and v.get("num_experts")):
        return False
    balances = v.get("moe_router_load_balancing_type") and v.get("moe_aux_loss_coeff")
    of_megatron = v.launch.dialect != "nemo-rl" or v.get("strategy") == "megatron"
    return bool(some and balances and of_megatron and not v.get("hybrid_pattern"))


@rule(
    "PIPE009",
    "error hang training",
    source=(
        MOE_UTILS.says("track_moe_metrics", 'tracker[key]["values"] = torch.zeros(num_layers', ">=0.13,<0.17"),
        NEMO_RL_COMMON.says("get_moe_metrics", "reduce_aux_losses_tracker_across_ranks()", ">=0.5"),
    ),
    applies=_logs_experts_of_stages,
    good=Example("mlm", f"{_MODEL}[1,0,0,1]", "mcore=0.16.1"),
    bad=Example("mlm", f"{_MODEL}[0,0,1,1]", "mcore=0.16.1"),
    recipe_settled=True,
)
def every_stage_counts_the_same_losses(v: View) -> Problem | None:
    """Where experts' losses are logged, every pipeline rank has some experts.

    The losses are summed over the pipeline, in a tensor with a place for each layer. A rank without experts makes its
    own, which before megatron-core 0.17 has no place for multi-token prediction (NVIDIA/Megatron-LM#3401). NeMo-RL
    makes none, and such a rank skips the sum (NVIDIA-NeMo/RL#3419).
    """
    nemo_rl = v.launch.dialect == "nemo-rl"
    if not nemo_rl and not v.get("mtp_layers"):
        return None
    without = _ranks_without_experts(v)
    if not without or (not v.at_least("nemo_rl", "0.5") if nemo_rl else not _sizes_differ(v)):
        return None
    said = f"rank{'s' if len(without) > 1 else ''} {' '.join(map(str, without))} of {v.pp}"
    return Problem(
        message="the first step hangs when the experts' losses are summed over the pipeline: a rank without experts "
        + ("doesn't take part" if nemo_rl else "has a shorter tensor"),
        found=f"pipeline {said} without a layer that has experts"
        + ("" if nemo_rl else f", and {v.mtp_layers} layers of multi-token prediction"),
        wanted="experts on every pipeline rank" + ("" if nemo_rl else ", or megatron-core 0.17 or newer"),
        facts=("pp", "moe_layer_freq", "moe_aux_loss_coeff", *(() if nemo_rl else ("mtp_layers",))),
    )


def _sizes_differ(v: View) -> bool:
    return v.at_least("mcore", "0.13") and not v.at_least("mcore", "0.17")


def _ranks_without_experts(v: View) -> tuple[int, ...]:
    """The pipeline ranks none of whose layers has experts. A layer of multi-token prediction is like the last one."""
    experts = experts_by_layer({"moe_layer_freq": v.moe_layer_freq}, v.num_layers)
    having, first = set(), 0
    for index, stage in enumerate(_stages(v)):
        last = first + stage.count("t")
        if any(experts[first:last]) or ("m" in stage and experts[-1]):
            having.add(index % v.pp)
        first = last
    return tuple(sorted(set(range(v.pp)) - having))


def _stages(v: View) -> tuple[str, ...]:
    """The virtual stages in the order of their layers, in the letters of a layout."""
    by_default = v.launch.dialect == "nemo-rl"  # NeMo-RL has neither, unless model_overrides name them
    if v.get("pipeline_layout") if by_default else v.pipeline_layout:
        return layout_of(v).stages
    sizes, chunks = given_stages(v), (v.get("vpp") if by_default else v.vpp) or 1
    rest = (split_layers(v) - sum(sizes.values())) // max(v.pp - len(sizes), 1)
    ranks = [rest] * v.pp
    ranks[0], ranks[-1] = sizes.get("first", rest), sizes.get("last", rest)
    ranks = [min(size, v.num_layers) for size in ranks]  # whatever the launch says, there are no more
    chunks = min(chunks, max(*ranks, 0) + 1)  # of more chunks than layers each is empty, however many more
    counts = [size // chunks for size in ranks] * chunks
    counts[0] -= bool(v.get("embedding_counts"))
    counts[-1] -= bool(v.get("loss_counts"))
    return tuple("t" * count for count in counts)
