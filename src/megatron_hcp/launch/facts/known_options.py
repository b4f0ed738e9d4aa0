"""Which options Megatron-LM's own parser has, and what follows each of them, by release and branch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.facts.last_read import BRANCHES, of_package

Release = tuple[int, int, int]


class OptionRow(NamedTuple):
    """Revisions, oldest first, and what follows an option in their parser."""

    revisions: tuple[str, ...]
    takes: str


def all_options() -> frozenset[str]:
    """All options of any revision, as argparse destinations: `context_parallel_size`."""
    return frozenset(_table())


def all_revisions() -> tuple[str, ...]:
    """The releases and branches in the table, oldest first."""
    return _revisions()


def revisions_with(option: str) -> tuple[str, ...]:
    """The releases and branches that have the option, oldest first; empty if no revision has it.

    >>> revisions_with("dynamic_context_parallel"), revisions_with("our_own_option")
    (('dev',), ())
    """
    having = {revision for row in rows_of(option) for revision in row.revisions}
    return tuple(revision for revision in _revisions() if revision in having)


def rows_of(option: str) -> Sequence[OptionRow]:
    """What follows the option, by the revisions that have it: `launch.forms.words.fitting` reads it.

    >>> [(row.revisions[0], row.takes) for row in rows_of("cuda_graph_impl")][0]
    ('0.15.0', 'str|none|local|transformer_engine')
    """
    return _table().get(option, ())


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
    same = [name for name in _revisions() if name not in BRANCHES and _release(name)[:2] == release[:2]]
    older = [name for name in same if _release(name) <= release]
    return next(iter(older[-1:] or same), None)


def _release(name: str) -> Release:
    major, minor, micro = map(int, name.split("."))
    return major, minor, micro


@cache
def _lines() -> tuple[str, ...]:
    with open(os.path.join(os.path.dirname(__file__), "known_options.txt"), encoding="utf-8") as file:
        return tuple(file.read().splitlines())


@cache
def _revisions() -> tuple[str, ...]:
    first = next(line for line in _lines() if line.startswith("revisions: "))
    return tuple(first.split()[1:])


@cache
def _table() -> Mapping[str, Sequence[OptionRow]]:
    """By option. A line holds ranges of revisions, what follows, and the options: `0.16.0..dev switch: a b`."""
    order = _revisions()
    table: dict[str, list[OptionRow]] = {}
    for line in _lines():
        head, _, names = line.partition(": ")
        if line.startswith(("#", "revisions: ")):
            continue
        runs, _, takes = head.partition(" ")
        revisions: list[str] = []
        for run in runs.split(","):
            first, _, last = run.partition("..")
            revisions += order[order.index(first) : order.index(last or first) + 1]
        row = OptionRow(tuple(revisions), takes)
        for name in names.split():
            table.setdefault(name, []).append(row)
    return table
