"""The number of ranks, in megatron-core's dense grid and in its expert grid."""

from __future__ import annotations

from math import gcd, lcm

from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.fact import ELASTIC_STARTS
from megatron_hcp.rules.cp.view import nearest_divisors, over
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.topo.view import dense_ranks, expert_ranks, fits_a_gpu, grids_divide_ranks
from megatron_hcp.rules.upstream import (
    ARGUMENTS,
    BRIDGE_CONFIG,
    MS_SWIFT_ARGUMENTS,
    NEMO_RL_POLICY,
    PARALLEL_STATE,
    VERL_CONFIG,
)
from megatron_hcp.rules.view import View

_GPUS_OF_A_NODE = 8


def _say_shards(count: int) -> str:
    return f" x weight shards {count}" if count > 1 else ""


def _node_fixes(v: View, unit: int) -> list[Fix]:
    """The next larger number of nodes whose ranks are a multiple of `unit`."""
    names = (
        ("actor_num_nodes", "actor_num_gpus_per_node") if v.launch.dialect == "slime" else ("nodes", "gpus_per_node")
    )
    if not v.known(*names):
        return []
    now, gpus = v[names[0]], v[names[1]]
    if not (now and gpus) or v.world_size != now * gpus:
        return []
    step = unit // gcd(unit, gpus)
    nodes = -(-now // step) * step
    fact, count = FRAMEWORKS[v.launch.dialect].nodes_by(v.launch.facts, nodes)
    fixes = [Fix({fact: count}, f"{nodes * gpus} ranks")]
    per_node = unit // gcd(unit, now)
    if v.get("start") in ELASTIC_STARTS and fact == "nodes" and gpus < per_node <= _GPUS_OF_A_NODE:
        fixes.insert(0, Fix({"gpus_per_node": per_node}, f"{per_node} ranks on each node"))
    return fixes


def _ep_sizes(v: View, others: int) -> list[int]:
    """Expert-parallel sizes near the launch's that divide its experts and, beside the `others`, the ranks."""
    if v.world_size % others:
        return []
    experts = v.get("num_experts") or 0
    return list(nearest_divisors(v.world_size // others, v.ep, lambda size: experts % size == 0))


def _say_ranks(count: int) -> str:
    return f"{count} rank{'' if count == 1 else 's'}"


@rule(
    "TOPO003",
    "error crash init",
    source=(
        PARALLEL_STATE.says("initialize_model_parallel", "world_size % ", ">=0.12"),
        ARGUMENTS.says("validate_args", "args.world_size % total_model_size == 0", ">=0.12"),
        BRIDGE_CONFIG.says("ConfigContainer.get_data_parallel_size", "is not divisible by total_model_size", ">=0.3"),
        VERL_CONFIG.says("validate_config", "must be divisible by model_parallel_size (", ">=0.7"),
        NEMO_RL_POLICY.says("Policy.__init__", "must be divisible by PP * CP * TP (", ">=0.4"),
        NEMO_RL_POLICY.says("Policy.__init__", "is insufficient for the parallelism configuration", ">=0.4"),
        # Too few ranks: DP is 0, and the global batch is divided by it.
        MS_SWIFT_ARGUMENTS.says(
            "MegatronArguments._init_distributed", "global_batch_size % micro_batch_times_data_parallel_size", ">=4.3"
        ),
    ),
    applies=lambda v: dense_ranks(v) > 1,
    good=Example("mlm", "--tensor-model-parallel-size 2 --context-parallel-size 4", "world_size=16"),
    bad=Example("mlm", "--tensor-model-parallel-size 2 --context-parallel-size 4", "world_size=12"),
)
def ranks_fit_the_dense_layout(v: View) -> Problem | None:
    """The number of ranks is a multiple of tp x cp x pp.

    The data-parallel size is what remains of the ranks after tp, cp, pp and weight shards; it must be an integer.
    """
    shard = dense_ranks(v)
    if v.world_size % shard == 0:
        return None
    fixes = _node_fixes(v, shard)
    for axis, kind in (("cp", "context"), ("tp", "tensor"), ("pp", "pipeline")):
        others = shard // v[axis]
        if not (axis == "cp" and v.get("hcp_sizes")):
            near = nearest_divisors(v.world_size // others, v[axis])
            fixes += [Fix({axis: size}, over(kind, size)) for size in near if fits_a_gpu(v, **{axis: size})]
    sizes = f"tp {v.tp} x cp {v.cp} x pp {v.pp}{_say_shards(v.get('gtp', 1))}"
    return Problem(
        message="start-up fails: no data-parallel size fits",
        found=f"{_say_ranks(v.world_size)} for {sizes} = {shard}",
        wanted=f"a multiple of {shard} ranks",
        facts=("world_size", "cp", "tp", "pp"),
        fixes=tuple(fixes),
        stage="init" if v.dialect in ("bridge-provider", "verl") else "config",
    )


@rule(
    "TOPO004",
    "error crash init",
    source=(PARALLEL_STATE.says("initialize_model_parallel", "expert_tensor_model_pipeline_parallel_size", ">=0.12"),),
    applies=lambda v: bool(v.ep > 1 or v.etp != v.tp or v.get("egtp", 1) > 1),
    good=Example(
        "mlm",
        "--tensor-model-parallel-size 2 --context-parallel-size 3 --expert-model-parallel-size 4 "
        "--expert-tensor-parallel-size 1 --num-experts 8 --disable-bias-linear --sequence-parallel",
        "world_size=12",
    ),
    bad=Example(
        "mlm",
        "--tensor-model-parallel-size 2 --context-parallel-size 3 --expert-model-parallel-size 4 "
        "--expert-tensor-parallel-size 1 --num-experts 8 --disable-bias-linear --sequence-parallel",
        "world_size=6",
    ),
)
def ranks_fit_the_expert_layout(v: View) -> Problem | None:
    """The number of ranks is a multiple of etp x ep x pp.

    Experts have their own grid over the same ranks, without a CP axis. The smallest world that both grids fit is pp x
    lcm(tp x cp, etp x ep), which can be more than the larger of the two products.
    """
    expert = expert_ranks(v)
    if v.world_size % expert == 0:
        return None
    both = lcm(dense_ranks(v), expert)
    whole = Fix({"etp": 1}, "each expert whole on its rank")
    fits_whole = v.etp > 1 and v.world_size % (expert // v.etp) == 0
    fixes = [whole] if fits_whole else []
    if v.etp > 1 and not fits_whole:
        sizes = [size for size in _ep_sizes(v, expert // v.etp // v.ep) if size > 1]
        fixes += [Fix({**whole.edits, "ep": size}, f"{whole.effect}, {over('expert', size)}") for size in sizes]
    by_ep = [Fix({"ep": size}, over("expert", size)) for size in _ep_sizes(v, expert // v.ep)]
    # A size that fits the ranks comes before more nodes, and those before no expert parallelism.
    fixes += [fix for fix in by_ep if fix.edits["ep"] > 1]
    fixes += [*_node_fixes(v, both), *(fix for fix in by_ep if fix.edits["ep"] == 1)]
    if v.etp != v.tp > 1:
        fixes.append(Fix({"etp": v.tp}, "experts split like the dense layers"))
    shards = _say_shards(v.get("egtp", 1))
    return Problem(
        message="start-up fails: the expert grid, which has no CP axis, doesn't divide the ranks",
        found=f"{_say_ranks(v.world_size)} for etp {v.etp} x ep {v.ep} x pp {v.pp}{shards} = {expert}",
        wanted=f"a multiple of {expert} ranks" + (f"; of {both}, to fit the dense grid too" if both != expert else ""),
        facts=("ep", "etp", "world_size", "pp"),
        fixes=tuple(fixes),
    )


@rule(
    "TOPO006",
    "error crash init",
    source=(
        PARALLEL_STATE.says(
            "initialize_model_parallel",
            "expert_data_parallel_size % num_distributed_optimizer_instances == 0",
            ">=0.13",
        ),
        PARALLEL_STATE.says("initialize_model_parallel", ") % num_distributed_optimizer_instances == 0, (", ">=0.12"),
        PARALLEL_STATE.says("initialize_model_parallel", "Data parallel size should be divisible by", ">=0.12"),
    ),
    applies=lambda v: v.get("num_distributed_optimizer_instances", 1) > 1,
    good=Example(
        "mlm",
        "--context-parallel-size 2 --num-distributed-optimizer-instances 2 --use-distributed-optimizer",
        "world_size=8",
    ),
    bad=Example(
        "mlm",
        "--context-parallel-size 2 --num-distributed-optimizer-instances 3 --use-distributed-optimizer",
        "world_size=8",
    ),
)
def optimizer_instances_divide_dp_cp(v: View) -> Problem | None:
    """Distributed-optimizer instances divide DP x CP and the experts' DP size.

    megatron-core asserts both when building the data-parallel groups of each grid; 0.12 asserts the first alone.
    """
    if not grids_divide_ranks(v):
        return None
    count = v.num_distributed_optimizer_instances
    with_cp, of_experts = v.world_size // dense_ranks(v) * v.cp, v.world_size // expert_ranks(v)
    if v.known("mcore") and not v.at_least("mcore", "0.13"):
        of_experts = with_cp
    if with_cp % count == 0 and of_experts % count == 0:
        return None
    fitting = nearest_divisors(gcd(with_cp, of_experts), count)
    return Problem(
        message="start-up fails: the distributed optimizer cannot be split into that many instances",
        found=f"{count} instances for DP x CP = {with_cp} and an expert data-parallel size of {of_experts}",
        wanted="a number of instances that divides both",
        facts=("num_distributed_optimizer_instances", "cp", "ep", "world_size"),
        fixes=tuple(
            Fix({"num_distributed_optimizer_instances": size}, f"{size} instances" if size > 1 else "one instance")
            for size in fitting
        ),
    )
