"""Published schedulers of dynamic context parallelism, reimplemented from their behavior.

`dev`, `main` and `static:C` give the plans of the real ones exactly (lab/dcp/upstream.py compares them), `pr5869` the
pull request's, and `fcp` what its paper says. None of them accounts for padding, a cost, or a limit other than tokens
per rank.
"""

from __future__ import annotations

from collections.abc import Sequence

from megatron_hcp.dcp.cost import Cost
from megatron_hcp.dcp.groups import is_usable, usable_sizes
from megatron_hcp.dcp.lengths import MOST_RANKS, check_lengths, check_positive
from megatron_hcp.dcp.plan import Group, MicroBatch
from megatron_hcp.dcp.published.dev import packing_aware
from megatron_hcp.dcp.published.fcp import flexible
from megatron_hcp.dcp.published.main import balanced_cp
from megatron_hcp.dcp.published.open_group import Batches
from megatron_hcp.dcp.published.pr5869 import even_micro_batches
from megatron_hcp.dcp.published.static import dp_balanced
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.numbers import whole_number

PUBLISHED = ("dev", "main", "mcore", "fcp", "static:C", "pr5869")
"""As they are named: `mcore`, the released packages, has main's scheduler; C is a number of ranks."""
NO_PACKING = frozenset(("main", "mcore"))
"""Their groups run each sequence in its own forward pass."""


def published_micro_batches(
    policy: str, lengths: Sequence[int], world_size: int, max_seqlen: int, cost: Cost
) -> tuple[MicroBatch, ...]:
    """The micro-batches of a published scheduler, one of PUBLISHED with a number for C; only `fcp` reads the cost.

    Raises HcpError for an unknown policy, and where the scheduler fails, or makes a group that has no process group.
    """
    check_positive("world_size", world_size, MOST_RANKS)
    check_positive("max_seqlen", max_seqlen)
    check_lengths(lengths)
    batches = _batches(policy, lengths, world_size, max_seqlen, cost)
    result = []
    for batch in batches:
        start, groups = 0, []
        for size, samples in batch:
            if policy in _BRANCHES:
                _check_process_group(policy, start, size, world_size)
            groups.append(Group(start, size, tuple(samples)))
            start += size
        result.append(MicroBatch(tuple(groups)))
    return tuple(result)


_BRANCHES = {"dev": "dev", "main": "main", "mcore": "main"}
"""Whose process groups a scheduler's groups need (see `usable_sizes`)."""


def _batches(policy: str, lengths: Sequence[int], world_size: int, max_seqlen: int, cost: Cost) -> Batches:
    size = size_in(policy)
    if size is not None:
        return dp_balanced(lengths, world_size, max_seqlen, size)
    if policy == "dev":
        return packing_aware(lengths, world_size, max_seqlen)
    if policy in NO_PACKING:
        return balanced_cp(lengths, world_size, max_seqlen)
    if policy == "fcp":
        return flexible(lengths, world_size, max_seqlen, cost.work)
    if policy == "pr5869":
        return even_micro_batches(lengths, world_size, max_seqlen)
    raise HcpError(f"policy: found {policy!r:.40}", wanted=f"one of {', '.join(PUBLISHED)}", do="for example static:8")


def size_in(policy: str) -> int | None:
    """The static size that `static:C` names; None for another policy.

    Raises HcpError where C is no number.

    >>> size_in("static:8"), size_in("dev")
    (8, None)
    """
    name, colon, text = policy.partition(":")
    if name != "static" or not colon:
        return None
    size = whole_number(text, 7)
    if size is None:
        raise HcpError(
            f"policy: found {policy!r:.40}", wanted="static:C with a number of ranks for C", do="for example static:8"
        )
    return size


def _check_process_group(policy: str, start: int, size: int, world_size: int) -> None:
    branch = _BRANCHES[policy]
    if not is_usable(start, size, world_size, branch):
        sizes = " ".join(map(str, usable_sizes(world_size, branch)))
        raise HcpError(
            f"policy {policy}: it gives ranks {start} to {start + size - 1} to one group, which has no process group "
            f"on {world_size} ranks (sizes {sizes}, aligned)",
            do="use a power of two for world_size",
        )


def static_size(lengths: Sequence[int], world_size: int, max_seqlen: int) -> int | None:
    """The smallest static cp_size whose groups hold the longest sequence, as `static:C` needs it; None without one.

    >>> static_size([3000, 10], 12, 1024), static_size([9000], 8, 1024)
    (3, None)
    """
    least = -(-max(lengths) // max_seqlen)
    return next((size for size in range(least, world_size + 1) if world_size % size == 0), None)
