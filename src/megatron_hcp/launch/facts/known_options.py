"""Which options Megatron-LM's own parser has, by release and branch; known_options.txt also says what follows each."""

from __future__ import annotations

from functools import cache, lru_cache

from megatron_hcp.launch.facts.last_read import BRANCHES, of_package
from megatron_hcp.launch.facts.option_table import OptionTable, option_table

Release = tuple[int, int, int]


def table() -> OptionTable:
    """All options of Megatron-LM's own parser, and what follows each.

    >>> [(row.revisions[0], row.takes) for row in table().rows["cuda_graph_impl"]][0]
    ('0.15.0', 'str|none|local|transformer_engine')
    """
    return option_table("known_options.txt")


@cache
def all_options() -> frozenset[str]:
    """All options of any revision, as argparse destinations: `context_parallel_size`."""
    return frozenset(table().rows)


@lru_cache(maxsize=2_000)
def revisions_with(option: str) -> tuple[str, ...]:
    """The releases and branches that have the option, oldest first; empty if no revision has it.

    >>> revisions_with("dynamic_context_parallel"), revisions_with("our_own_option")
    (('dev',), ())
    """
    return table().revisions_with(option)


def revision_of(release: Release, branch: str | None) -> str | None:
    """The revision whose options a megatron-core of this release and branch has; None if there is no matching one.

    A patch release has the options of the newest known one before it. A branch moves, so it counts as the version that
    it had when it was read.

    >>> revision_of((0, 16, 2), "main"), revision_of((0, 20, 0), "main"), revision_of((0, 21, 0), "main")
    ('0.16.1', 'main', None)
    >>> revision_of((0, 19, 0), "dev"), revision_of((0, 16, 0), "dev")
    ('dev', None)
    """
    read = of_package("mcore", branch or "")
    if branch in BRANCHES and read is not None and release[:2] == read.numbers[:2]:
        return branch
    if branch != "main":
        return None
    same = [name for name in table().revisions if name not in BRANCHES and _release(name)[:2] == release[:2]]
    older = [name for name in same if _release(name) <= release]
    return next(iter(older[-1:] or same), None)


def _release(name: str) -> Release:
    major, minor, micro = map(int, name.split("."))
    return major, minor, micro
