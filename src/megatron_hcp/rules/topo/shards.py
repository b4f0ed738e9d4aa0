"""Weight shards: weights split over more ranks than tensor parallelism has, which megatron-core calls GTP."""

from __future__ import annotations

from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import MODEL_PARALLEL_CONFIG, PARALLEL_STATE
from megatron_hcp.rules.view import View

_SHARDED = (("weight_shards", "tp"), ("expert_weight_shards", "etp"))
"""The shards of dense and expert weights, each with the tensor-parallel size that it includes."""


def _has_shards(v: View) -> bool:
    return any(v.get(shards) is not None for shards, _ in _SHARDED)


@rule(
    "TOPO008",
    "error crash config",
    source=(
        MODEL_PARALLEL_CONFIG.says(
            "resolve_tensor_parallel_weight_shards",
            "tensor_parallel_num_weight_shards % tp != 0",
            ">=0.19",
            where="checkout",
            branches=("main",),
        ),
    ),
    applies=_has_shards,
    good=Example("mlm", "--tensor-model-parallel-size 2 --tensor-parallel-num-weight-shards 4"),
    bad=Example("mlm", "--tensor-model-parallel-size 2 --tensor-parallel-num-weight-shards 3"),
)
def weight_shards_are_a_multiple_of_tensor_parallelism(v: View) -> Problem | None:
    """The number of weight shards is a multiple of the tensor-parallel size.

    The number of shards includes tensor parallelism: 8 shards at a tensor-parallel size of 4 split each weight in two
    once more. A number below it, or not a multiple of it, leaves no valid size for the second split. The experts have
    their own number, relative to their own tensor-parallel size.
    """
    for name, axis in _SHARDED:
        shards = v[name]
        if shards is None or shards % v[axis] == 0:
            continue
        size, key = v[axis], "expert_tensor_parallel_size" if axis == "etp" else "tensor_model_parallel_size"
        below, above = shards // size * size, -(-shards // size) * size
        return Problem(
            message="start-up fails: weights are split over tensor parallelism first, and what remains isn't a whole "
            "number",
            found=f"{shards} weight shards at {key} {size}",
            wanted=f"a multiple of {size}",
            facts=(name, axis),
            fixes=tuple(Fix({name: count}, f"{count} shards") for count in dict.fromkeys((above, below)) if count),
        )
    return None


@rule(
    "TOPO009",
    "error crash init",
    source=(
        PARALLEL_STATE.says(
            "initialize_model_parallel",
            "num_distributed_optimizer_instances > 1 is not yet supported",
            ">=0.19",
            where="checkout",
            branches=("main",),
        ),
    ),
    applies=_has_shards,
    good=Example("mlm", "--tensor-parallel-num-weight-shards 2", "world_size=8"),
    bad=Example(
        "mlm",
        "--tensor-parallel-num-weight-shards 2 --num-distributed-optimizer-instances 2 --use-distributed-optimizer",
        "world_size=8",
    ),
)
def weight_shards_have_one_optimizer_instance(v: View) -> Problem | None:
    """Weight shards are used with a single distributed-optimizer instance.

    Several instances split the data-parallel ranks further, and the groups for that don't account for weight shards:
    megatron-core asserts this before it builds any group.
    """
    count = v.num_distributed_optimizer_instances
    if count == 1 or max(v.gtp, v.egtp) == 1:
        return None
    sharded = "weight_shards" if v.gtp > 1 else "expert_weight_shards"
    return Problem(
        message="start-up fails: the groups of several optimizer instances don't account for weight shards",
        found=f"{count} optimizer instances with {v[sharded]} weight shards",
        wanted="one instance, or no weight shards beyond tensor parallelism",
        facts=("num_distributed_optimizer_instances", sharded),
        fixes=(
            Fix({"num_distributed_optimizer_instances": 1}, "one instance"),
            Fix({sharded: None}, "weights split over tensor parallelism only"),
        ),
    )
