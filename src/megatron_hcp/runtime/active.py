"""Is hierarchical CP active in this model? A check to run inside a real job, after the model is built.

Nothing that megatron-core, Transformer Engine or Bridge prints answers this: the flat CP group exists either way, and
the sizes in a log only repeat the configuration. What counts is the process groups held by the attention modules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from megatron_hcp.core.levels import level_groups_at

HIERARCHICAL = "a2a+p2p"


def assert_hcp_active(model: torch.nn.Module | Iterable[torch.nn.Module], sizes: Sequence[int] | None = None) -> int:
    """The number of attention modules that run hierarchical CP; raises if any module declares it but does not run it.

    Any rank may call it: it does not communicate. Works on Transformer Engine's DotProductAttention and
    megatron-core's TEDotProductAttention as they are, wrapped (DDP, Float16Module) or not.

    Args:
        model: the model, or the list of model chunks that Megatron's set-up returns.
        sizes: the expected (inner, outer); None for each module's own `config.hierarchical_context_parallel_sizes`.

    Raises:
        AssertionError: no module declares cp_comm_type a2a+p2p, or one that does holds no groups (HCP001, HCP010,
            HCP012), groups of other sizes (HCP023), or groups of other ranks than its level's (the wrong order).

    Source: transformer-engine, transformer_engine/pytorch/attention/dot_product_attention/dot_product_attention.py,
    DotProductAttention.set_context_parallel_group: cp_group, cp_global_ranks, cp_comm_type.
    """
    problem = hcp_problem(model, sizes)
    if problem:
        raise AssertionError(problem)
    return sum(1 for _ in _attention_modules(model))


def hcp_problem(model: torch.nn.Module | Iterable[torch.nn.Module], sizes: Sequence[int] | None = None) -> str | None:
    """The message that assert_hcp_active would raise; None if it would not raise."""
    modules = list(_attention_modules(model))
    if not modules:
        return (
            "no attention module declares cp_comm_type a2a+p2p: hierarchical CP is configured nowhere in this "
            "model (HCP006), or context_parallel_size is 1"
        )
    for name, module in modules:
        problem = _problem_of(module, sizes)
        if problem:
            return f"{name or type(module).__name__}: {problem}"
    return None


def _attention_modules(model: torch.nn.Module | Iterable[torch.nn.Module]) -> Iterator[tuple[str, torch.nn.Module]]:
    chunks = [model] if isinstance(model, torch.nn.Module) else list(model)
    for chunk in chunks:
        for name, module in chunk.named_modules():
            if getattr(module, "cp_comm_type", None) == HIERARCHICAL and hasattr(module, "cp_group"):
                yield name, module


def _problem_of(module: Any, sizes: Sequence[int] | None) -> str | None:
    config = getattr(module, "config", None)
    configured = getattr(config, "hierarchical_context_parallel_sizes", None)
    wanted = list(sizes or configured or [])
    groups = module.cp_group
    if not groups:
        cause = (
            "the sizes are in the configuration, but mpu.initialize_model_parallel was not given them (HCP010), "
            "or the groups are only in a process group collection (HCP012)"
            if configured
            else "hierarchical_context_parallel_sizes is not set (HCP001)"
        )
        return f"cp_group is {groups}, so context parallelism is silently off: {cause}"
    if not isinstance(groups, list):
        return "cp_group is one process group: wanted the list [inner, outer]"
    members = [_members(group) for group in groups]
    if any(not ranks for ranks in members):
        return "cp_group holds process groups that are destroyed (HCP023)"
    found = [len(ranks) for ranks in members]
    if not wanted:
        return (
            f"cp_group has levels of {found} ranks, but no sizes are configured: groups left over from an earlier "
            "initialize_model_parallel (HCP023)"
        )
    if found != wanted:
        return (
            f"cp_group has levels of {found} ranks, wanted {wanted}: groups of another configuration, left over "
            "from an earlier initialize_model_parallel (HCP023)"
        )
    return _misplaced(list(module.cp_global_ranks or []), members, wanted)


def _misplaced(cp_ranks: list[int], members: list[list[int]], sizes: list[int]) -> str | None:
    here = dist.get_rank()
    if here not in cp_ranks:
        return f"rank {here} is not in its own cp_global_ranks {cp_ranks}"
    if len(members) != 2:
        return f"cp_group has {len(members)} levels: Transformer Engine takes exactly two (HCP003)"
    product = sizes[0] * sizes[1]
    if product != len(cp_ranks):
        return f"levels {sizes} cover {product} ranks, but the CP group has {len(cp_ranks)} (HCP002, HCP023)"
    expected = [list(group) for group in level_groups_at(cp_ranks, sizes, cp_ranks.index(here))]
    if members != expected:
        return (
            f"cp_group holds ranks {members}, wanted {expected}: the inner (a2a) level comes first, and is the "
            "adjacent ranks of the CP group"
        )
    return None


def _members(group: Any) -> list[int]:
    try:
        return list(dist.get_process_group_ranks(group))
    except (ValueError, RuntimeError, KeyError):  # a destroyed group is no longer registered
        return []
