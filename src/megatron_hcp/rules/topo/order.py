"""The axis order of the rank numbering, in megatron-core's dense grid and in its expert grid."""

from __future__ import annotations

from math import prod

from megatron_hcp.core.ranks import DEFAULT_ORDER
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.topo.view import dense_ranks, expert_ranks, grids_divide_ranks
from megatron_hcp.rules.upstream import PARALLEL_STATE
from megatron_hcp.rules.view import View


def _order(v: View) -> str:
    return str(v.get("rank_order") or DEFAULT_ORDER)


def _unnamed_axes(v: View, axes: list[str]) -> list[str]:
    """The axes that the order must name but doesn't: those of size above 1 in either grid, since 0.19 tp at any size.

    0.19 adds the axis gtp_remat to the order, and matches the letters tp in its name as the axis tp.
    """
    sizes = {
        "tp": max(v.tp, v.etp),
        "cp": v.cp,
        "ep": v.ep,
        "pp": v.pp,
        "dp": v.world_size // min(dense_ranks(v), expert_ranks(v)),
    }
    if "tp" not in axes and sizes["tp"] == 1 and v.at_least("mcore", "0.19") and v.get("mcore_branch") != "dev":
        return ["tp"]
    return [axis for axis, size in sizes.items() if size > 1 and axis not in axes]


def _pipeline_stride(v: View, axes: list[str], expert: bool) -> int:
    """The rank stride between pipeline stages in a grid."""
    if expert:
        sizes = {"tp": v.etp, "ep": v.ep * v.get("egtp", 1), "dp": v.world_size // expert_ranks(v)}
    else:
        sizes = {"tp": v.tp * v.get("gtp", 1), "cp": v.cp, "dp": v.world_size // dense_ranks(v)}
    return prod(sizes.get(axis, 1) for axis in axes[: axes.index("pp")])


def _has_inner_pipeline(v: View) -> bool:
    """Whether there is a pipeline whose axis isn't the slowest-varying."""
    return v.get("pp") != 1 and not _order(v).endswith("pp") and v.pp > 1


@rule(
    "TOPO005",
    "error crash init",
    source=(
        PARALLEL_STATE.says("initialize_model_parallel", "expert_data_parallel_size == data_parallel_size", ">=0.12"),
    ),
    applies=_has_inner_pipeline,
    good=Example(
        "mlm",
        "--pipeline-model-parallel-size 2 --context-parallel-size 2 --use-tp-pp-dp-mapping "
        "--num-experts 4 --disable-bias-linear --expert-model-parallel-size 2",
        "world_size=8",
    ),
    bad=Example(
        "mlm", "--pipeline-model-parallel-size 2 --context-parallel-size 2 --use-tp-pp-dp-mapping", "world_size=8"
    ),
)
def dense_and_expert_pipelines_agree(v: View) -> Problem | None:
    """Dense and expert layers share their pipeline groups.

    If the pipeline axis isn't the slowest-varying, the two grids agree on pipeline groups only if their data-parallel
    sizes are equal. The expert grid exists in dense models too, so a dense model with pp > 1 and cp > 1 always fails
    under --use-tp-pp-dp-mapping.
    """
    order = _order(v)
    axes = order.lower().split("-")
    if not grids_divide_ranks(v) or _unnamed_axes(v, axes):
        return None
    # Upstream compares the two data-parallel sizes, then the lists of pipeline groups.
    if dense_ranks(v) == expert_ranks(v) and _pipeline_stride(v, axes, False) == _pipeline_stride(v, axes, True):
        return None
    width, of_experts = v.tp * v.get("gtp", 1) * v.cp, v.etp * v.get("egtp", 1)
    fixes = []
    if v.get("use_tp_pp_dp_mapping"):
        fixes.append(Fix({"use_tp_pp_dp_mapping": False}, "the pipeline axis varies slowest"))
    if v.get("num_experts") and width % of_experts == 0:
        fixes.append(Fix({"ep": width // of_experts}, f"experts over {width // of_experts} ranks"))
    return Problem(
        message="start-up fails: dense and expert layers would get different pipeline groups (in a dense model, too)",
        found=f"rank order {order} with tp x cp = {width} and etp x ep = {of_experts * v.ep} at pp {v.pp}",
        wanted=f"the order {DEFAULT_ORDER}, or etp x ep equal to tp x cp",
        facts=("rank_order", "tp", "cp", "etp", "ep", "pp"),
        fixes=tuple(fixes),
    )


@rule(
    "TOPO007",
    "error crash init",
    source=(
        PARALLEL_STATE.says("RankGenerator.__init__", "but you haven't", ">=0.12"),
        PARALLEL_STATE.says("_inject_gtp_remat_axis", 'toks.insert(pos, "gtp_remat")', ">=0.19", branches=("main",)),
    ),
    applies=lambda v: v.get("rank_order") not in (None, DEFAULT_ORDER, "tp-cp-ep-pp-dp"),
    good=Example(
        "bridge-provider",
        "model.context_parallel_size=2 model.tensor_model_parallel_size=1 "
        "model.pipeline_model_parallel_size=1 model.expert_model_parallel_size=1 "
        "model.expert_tensor_parallel_size=1",
        "world_size=4 rank_order=cp-dp mcore=0.16.1",
    ),
    bad=Example(
        "bridge-provider",
        "model.context_parallel_size=2 model.tensor_model_parallel_size=1 "
        "model.pipeline_model_parallel_size=1 model.expert_model_parallel_size=1 "
        "model.expert_tensor_parallel_size=1",
        "world_size=4 rank_order=tp-dp",
    ),
)
def order_names_every_axis(v: View) -> Problem | None:
    """The rank order names every axis in use.

    A custom rank order (an argument of initialize_model_parallel) may omit only axes of size 1, and since 0.19 never
    tp. The position of cp in it also determines which ranks the inner all-to-all connects.
    """
    missing = _unnamed_axes(v, _order(v).lower().split("-")) if grids_divide_ranks(v) else []
    if not missing:
        return None
    return Problem(
        message="start-up fails: the rank order omits an axis that megatron-core needs",
        found=f"rank order {_order(v)} without {', '.join(missing)}",
        wanted=f"tp, and every axis of size above 1, as in {DEFAULT_ORDER}",
        facts=("rank_order",),
    )
