"""The number of ranks and their order, in megatron-core's dense grid and in its expert grid."""

from __future__ import annotations

from math import gcd, lcm, prod

from hcp.core.ranks import DEFAULT_ORDER
from hcp.launch.fact import ELASTIC_STARTS
from hcp.rules.cp.view import nearest_divisors, over
from hcp.rules.rule import Example, Fix, Problem, rule
from hcp.rules.upstream import PARALLEL_STATE
from hcp.rules.view import View

_GPUS_OF_A_NODE = 8


def _dense_ranks(v: View) -> int:
    """Ranks of one replica: tp x cp x pp (x weight shards, where they are known)."""
    return int(v.tp * v.get("gtp", 1) * v.cp * v.pp)


def _expert_ranks(v: View) -> int:
    """Ranks of one replica of the experts: etp x ep x pp (x weight shards, where they are known)."""
    return int(v.etp * v.ep * v.get("egtp", 1) * v.pp)


def _say_shards(count: int) -> str:
    return f" x weight shards {count}" if count > 1 else ""


def _order(v: View) -> str:
    return str(v.get("rank_order") or DEFAULT_ORDER)


def _node_fixes(v: View, unit: int) -> list[Fix]:
    """The next larger number of nodes whose ranks are a multiple of `unit`."""
    if not v.known("nodes", "gpus_per_node") or v.world_size != v.nodes * v.gpus_per_node:
        return []
    step = unit // gcd(unit, v.gpus_per_node)
    nodes = -(-v.nodes // step) * step
    fixes = [Fix({"nodes": nodes}, f"{nodes * v.gpus_per_node} ranks")]
    per_node = unit // gcd(unit, v.nodes)
    if v.get("start") in ELASTIC_STARTS and v.gpus_per_node < per_node <= _GPUS_OF_A_NODE:
        fixes.insert(0, Fix({"gpus_per_node": per_node}, f"{per_node} ranks on each node"))
    return fixes


def _say_ranks(count: int) -> str:
    return f"{count} rank{'' if count == 1 else 's'}"


def _grids_divide_ranks(v: View) -> bool:
    """Whether both grids divide the ranks: else TOPO003 or TOPO004 reports it."""
    world_size = int(v.world_size)
    return world_size % _dense_ranks(v) == 0 and world_size % _expert_ranks(v) == 0


def _unnamed_axes(v: View, axes: list[str]) -> list[str]:
    """The axes of size above 1 in either grid that the order does not name."""
    sizes = {
        "tp": max(v.tp, v.etp),
        "cp": v.cp,
        "ep": v.ep,
        "pp": v.pp,
        "dp": v.world_size // min(_dense_ranks(v), _expert_ranks(v)),
    }
    return [axis for axis, size in sizes.items() if size > 1 and axis not in axes]


def _pipeline_stride(v: View, axes: list[str], expert: bool) -> int:
    """How far the stages of a pipeline stand apart in the numbering of ranks of a grid."""
    if expert:
        sizes = {"tp": v.etp, "ep": v.ep * v.get("egtp", 1), "dp": v.world_size // _expert_ranks(v)}
    else:
        sizes = {"tp": v.tp * v.get("gtp", 1), "cp": v.cp, "dp": v.world_size // _dense_ranks(v)}
    return prod(sizes.get(axis, 1) for axis in axes[: axes.index("pp")])


def _has_inner_pipeline(v: View) -> bool:
    """Whether there is a pipeline whose axis is not the slowest one."""
    return v.get("pp") != 1 and not _order(v).endswith("pp") and v.pp > 1


@rule(
    "TOPO003",
    severity="error",
    effect="crash",
    stage="init",
    source=(PARALLEL_STATE.says("initialize_model_parallel", "world_size % ", ">=0.12"),),
    applies=lambda v: _dense_ranks(v) > 1,
    good=Example("mlm", "--tensor-model-parallel-size 2 --context-parallel-size 4", "world_size=16"),
    bad=Example("mlm", "--tensor-model-parallel-size 2 --context-parallel-size 4", "world_size=12"),
)
def ranks_fit_the_dense_layout(v: View) -> Problem | None:
    """The ranks are a multiple of tp x cp x pp.

    The data-parallel size is what is left of the ranks after tp, cp, pp and weight shards; it must be whole.
    """
    shard = _dense_ranks(v)
    if v.world_size % shard == 0:
        return None
    fixes = _node_fixes(v, shard)
    for axis, kind in (("cp", "context"), ("tp", "tensor"), ("pp", "pipeline")):
        others = shard // v[axis]
        if not (axis == "cp" and v.get("hcp_sizes")):
            fixes += [Fix({axis: size}, over(kind, size)) for size in nearest_divisors(v.world_size // others, v[axis])]
    sizes = f"tp {v.tp} x cp {v.cp} x pp {v.pp}{_say_shards(v.get('gtp', 1))}"
    return Problem(
        message="start-up stops: no data-parallel size fits",
        found=f"{_say_ranks(v.world_size)} for {sizes} = {shard}",
        wanted=f"a multiple of {shard} ranks",
        facts=("world_size", "cp", "tp", "pp"),
        fixes=tuple(fixes),
        stage="init" if v.dialect in ("bridge-provider", "verl") else "config",
    )


@rule(
    "TOPO004",
    severity="error",
    effect="crash",
    stage="init",
    source=(PARALLEL_STATE.says("initialize_model_parallel", "expert_tensor_model_pipeline_parallel_size", ">=0.12"),),
    applies=lambda v: bool(v.ep > 1 or v.etp != v.tp or v.get("egtp", 1) > 1),
    good=Example(
        "mlm",
        "--tensor-model-parallel-size 2 --context-parallel-size 3 --expert-model-parallel-size 4 "
        "--expert-tensor-parallel-size 1 --num-experts 8 --sequence-parallel",
        "world_size=12",
    ),
    bad=Example(
        "mlm",
        "--tensor-model-parallel-size 2 --context-parallel-size 3 --expert-model-parallel-size 4 "
        "--expert-tensor-parallel-size 1 --num-experts 8 --sequence-parallel",
        "world_size=6",
    ),
)
def ranks_fit_the_expert_layout(v: View) -> Problem | None:
    """The ranks are a multiple of etp x ep x pp.

    Experts have a grid of their own over the same ranks, without a CP axis. The smallest world that both grids fit
    is pp x lcm(tp x cp, etp x ep), which can be more than the larger of the two products.
    """
    expert = _expert_ranks(v)
    if v.world_size % expert == 0:
        return None
    both = lcm(_dense_ranks(v), expert)
    fixes = _node_fixes(v, both)
    others = expert // v.ep
    if v.world_size % others == 0:
        experts = v.get("num_experts") or 0
        sizes = nearest_divisors(v.world_size // others, v.ep, lambda size: experts % size == 0)
        fixes += [Fix({"ep": size}, over("expert", size)) for size in sizes]
    if v.etp != v.tp:
        fixes.append(Fix({"etp": v.tp}, "experts split as the dense layers are"))
    shards = _say_shards(v.get("egtp", 1))
    return Problem(
        message="start-up stops: the expert grid, which has no CP axis, does not divide the ranks",
        found=f"{_say_ranks(v.world_size)} for etp {v.etp} x ep {v.ep} x pp {v.pp}{shards} = {expert}",
        wanted=f"a multiple of {expert} ranks; with the dense grid, of {both}",
        facts=("ep", "etp", "world_size", "pp"),
        fixes=tuple(fixes),
    )


@rule(
    "TOPO005",
    severity="error",
    effect="crash",
    stage="init",
    source=(
        PARALLEL_STATE.says("initialize_model_parallel", "expert_data_parallel_size == data_parallel_size", ">=0.12"),
    ),
    applies=_has_inner_pipeline,
    good=Example(
        "mlm",
        "--pipeline-model-parallel-size 2 --context-parallel-size 2 --use-tp-pp-dp-mapping "
        "--num-experts 4 --expert-model-parallel-size 2",
        "world_size=8",
    ),
    bad=Example(
        "mlm", "--pipeline-model-parallel-size 2 --context-parallel-size 2 --use-tp-pp-dp-mapping", "world_size=8"
    ),
)
def dense_and_expert_pipelines_agree(v: View) -> Problem | None:
    """Dense and expert layers share their pipeline groups.

    Where the pipeline axis is not the slowest one, the two grids agree on pipeline groups only if their
    data-parallel sizes are equal. The expert grid exists in dense models too, so a dense model with pp > 1 and cp >
    1 always fails under --use-tp-pp-dp-mapping.
    """
    order = _order(v)
    axes = order.lower().split("-")
    if not _grids_divide_ranks(v) or _unnamed_axes(v, axes):
        return None
    # Upstream compares the two data-parallel sizes, then the lists of pipeline groups.
    if _dense_ranks(v) == _expert_ranks(v) and _pipeline_stride(v, axes, False) == _pipeline_stride(v, axes, True):
        return None
    width, of_experts = v.tp * v.get("gtp", 1) * v.cp, v.etp * v.get("egtp", 1)
    fixes = []
    if v.get("use_tp_pp_dp_mapping"):
        fixes.append(Fix({"use_tp_pp_dp_mapping": False}, "the pipeline axis comes last"))
    if v.get("num_experts") and width % of_experts == 0:
        fixes.append(Fix({"ep": width // of_experts}, f"experts over {width // of_experts} ranks"))
    return Problem(
        message="start-up stops: dense and expert layers would get different pipeline groups, also in a dense model",
        found=f"rank order {order} with tp x cp = {width} and etp x ep = {of_experts * v.ep} at pp {v.pp}",
        wanted=f"the order {DEFAULT_ORDER}, or etp x ep equal to tp x cp",
        facts=("rank_order", "ep", "cp"),
        fixes=tuple(fixes),
    )


@rule(
    "TOPO006",
    severity="error",
    effect="crash",
    stage="init",
    source=(
        PARALLEL_STATE.says(
            "initialize_model_parallel",
            "expert_data_parallel_size % num_distributed_optimizer_instances == 0",
            ">=0.13",
        ),
        PARALLEL_STATE.says("initialize_model_parallel", ") % num_distributed_optimizer_instances == 0, (", ">=0.12"),
    ),
    applies=lambda v: v.get("num_distributed_optimizer_instances", 1) > 1,
    good=Example("mlm", "--context-parallel-size 2 --num-distributed-optimizer-instances 2", "world_size=8"),
    bad=Example("mlm", "--context-parallel-size 2 --num-distributed-optimizer-instances 3", "world_size=8"),
)
def optimizer_instances_divide_dp_cp(v: View) -> Problem | None:
    """Distributed-optimizer instances divide DP x CP and the experts' data-parallel size.

    megatron-core asserts both where it builds the data-parallel groups of each grid.
    """
    if not _grids_divide_ranks(v):
        return None
    count = v.num_distributed_optimizer_instances
    with_cp, of_experts = v.world_size // _dense_ranks(v) * v.cp, v.world_size // _expert_ranks(v)
    if with_cp % count == 0 and of_experts % count == 0:
        return None
    fitting = nearest_divisors(gcd(with_cp, of_experts), count)
    return Problem(
        message="start-up stops: the distributed optimizer cannot be split into that many instances",
        found=f"{count} instances for DP x CP = {with_cp} and an expert data-parallel size of {of_experts}",
        wanted="a number of instances that divides both",
        facts=("num_distributed_optimizer_instances", "cp", "ep", "world_size"),
        fixes=tuple(
            Fix({"num_distributed_optimizer_instances": size}, f"{size} instances" if size > 1 else "one instance")
            for size in fitting
        ),
    )


@rule(
    "TOPO007",
    severity="error",
    effect="crash",
    stage="init",
    source=(PARALLEL_STATE.says("RankGenerator.__init__", "but you haven't", ">=0.12"),),
    applies=lambda v: v.get("rank_order") not in (None, DEFAULT_ORDER, "tp-cp-ep-pp-dp"),
    good=Example(
        "bridge-provider",
        "model.context_parallel_size=2 model.tensor_model_parallel_size=1 "
        "model.pipeline_model_parallel_size=1 model.expert_model_parallel_size=1 "
        "model.expert_tensor_parallel_size=1",
        "world_size=4 rank_order=cp-dp",
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

    A rank order of your own (an argument of initialize_model_parallel) may leave out axes of size 1 only. The place
    of cp in it also decides which ranks the inner all-to-all joins.
    """
    missing = _unnamed_axes(v, _order(v).lower().split("-")) if _grids_divide_ranks(v) else []
    if not missing:
        return None
    return Problem(
        message="start-up stops: the rank order leaves out an axis that is in use",
        found=f"rank order {_order(v)} without {', '.join(missing)}",
        wanted=f"every axis of size above 1, as in {DEFAULT_ORDER}",
        facts=("rank_order",),
    )


RULES = (
    ranks_fit_the_dense_layout,
    ranks_fit_the_expert_layout,
    dense_and_expert_pipelines_agree,
    optimizer_instances_divide_dp_cp,
    order_names_every_axis,
)
