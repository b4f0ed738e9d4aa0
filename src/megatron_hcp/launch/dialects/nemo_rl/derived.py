"""What NeMo-RL computes from its settings."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from megatron_hcp.launch.dialects.values import Facts, expert_tensor_parallel, known, packs_by, put, value_of
from megatron_hcp.launch.fact import Fact


def derive(facts: Facts, unknown: MutableMapping[str, str]) -> None:
    """Adds the derived facts, in place."""
    _recomputation(facts)
    if "nodes" not in unknown:
        _policy_ranks(facts)
    expert_tensor_parallel(facts)
    packs_by(facts, "sequence_packing")


def nodes_by(facts: Mapping[str, Fact], count: int) -> tuple[str, int]:
    """The cluster's nodes that leave the policy this many: generation may have nodes of its own."""
    taken, own = facts.get("generation_nodes"), facts.get("colocated")
    separate = own is not None and own.value is False and taken is not None
    count += _of_teachers(facts)
    return "cluster_nodes", count + (int(taken.value or 0) if separate and taken is not None else 0)


def _of_teachers(facts: Mapping[str, Fact]) -> int:
    """The nodes of the cluster that teachers take."""
    fact = facts.get("teacher_nodes")
    return fact.value if fact is not None and type(fact.value) is int else 0


def _policy_ranks(facts: Facts) -> None:
    """The nodes and GPUs that remain for the policy if teachers and generation have their own.

    Source: nemo_rl/algorithms/grpo.py `setup`. Teachers take whole nodes; of what remains, generation takes some GPUs
    of one node, or whole nodes of several.
    """
    if not known(facts, "cluster_nodes", "cluster_gpus_per_node", "colocated"):
        return
    nodes, per_node = value_of(facts, "cluster_nodes"), value_of(facts, "cluster_gpus_per_node")
    nodes = (nodes or 0) - _of_teachers(facts)
    if value_of(facts, "colocated") is False:
        taken = "generation_gpus_per_node" if nodes == 1 else "generation_nodes"
        count = value_of(facts, taken)
        if not count or not nodes or not per_node or count >= (per_node if nodes == 1 else nodes):
            return  # rejected before a policy is created
        nodes, per_node = (nodes, per_node - count) if nodes == 1 else (nodes - count, per_node)
    if nodes > 0 and per_node:
        put(facts, "nodes", nodes, "cluster_nodes")
        put(facts, "gpus_per_node", per_node, "cluster_gpus_per_node")


def _recomputation(facts: Facts) -> None:
    """Nothing is recomputed without its switch; with it, whole layers one by one, or selected modules.

    Source: nemo_rl/models/megatron/setup.py `_apply_performance_config`.
    """
    switch = facts.get("activation_checkpointing")
    if switch is None:
        for name in ("recompute_granularity", "recompute_method", "recompute_num_layers"):
            facts.pop(name, None)
    elif not switch.value:
        facts["recompute_granularity"] = switch._replace(value=None, origin="derived")
    elif value_of(facts, "recompute_granularity") == "full":
        of = facts["recompute_granularity"]
        for name, value in (("recompute_method", "uniform"), ("recompute_num_layers", 1)):
            facts[name] = Fact(value, "derived", of.location, of.key)
