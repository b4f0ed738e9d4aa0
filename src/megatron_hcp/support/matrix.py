"""The table of `hcp support`: for each combination the largest size that rules allow, or the rules that block it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import NamedTuple

from megatron_hcp.judge.age import Age, ages_of
from megatron_hcp.launch.facts.releases import RELEASES
from megatron_hcp.support.question import COMM_TYPES, LAYOUTS, Answer, Subject, Way

UNBOUNDED = 1024
"""The size if nothing in the model limits it."""
TP_SIZES = (1, 2, 4, 8)
Versions = tuple[tuple[str, str], ...]


_PACKAGES = ("te", "mcore")
"""Whose releases decide what a model supports."""


class SupportCell(NamedTuple):
    """A communication type and layout at one tensor-parallel size.

    `largest` is the largest context-parallel size, for a2a+p2p of its inner level; None if no size passes; then
    `blocked` names the rules. UNBOUNDED: any size. `unknown` are facts that some rule needs.
    """

    comm_type: str
    layout: str
    tp: int
    largest: int | None
    blocked: tuple[str, ...]
    unknown: tuple[str, ...]


class ReleaseSpan(NamedTuple):
    """Consecutive releases with the same answer; `last` is None if it holds up to the newest."""

    first: str
    last: str | None
    blocked: tuple[str, ...]


class ByRelease(NamedTuple):
    """The answers for a communication type and layout, by release."""

    package: str
    comm_type: str
    layout: str
    spans: tuple[ReleaseSpan, ...]


class SupportTable(NamedTuple):
    """All answers about a subject. `presumed` are versions that weren't stated: the newest are used.

    `unread` are stated versions beyond what was read: faults and limits of older ones don't count against them.
    """

    cells: tuple[SupportCell, ...]
    by_release: tuple[ByRelease, ...]
    presumed: Versions
    unread: tuple[Age, ...] = ()


def support_table(subject: Subject, tp_sizes: Iterable[int] = TP_SIZES) -> SupportTable:
    """Queries every communication type, layout and tensor-parallel size, and unknown versions by release."""
    presumed = tuple((name, RELEASES[name][-1]) for name in _PACKAGES if not subject.stated(name))
    cells = [
        _cell(subject, comm_type, layout, tp, presumed)
        for comm_type in COMM_TYPES
        for layout in LAYOUTS
        for tp in tp_sizes
    ]
    by_release = [
        _by_release(subject, name, comm_type, layout, presumed)
        for name, _ in presumed
        for comm_type in COMM_TYPES
        for layout in LAYOUTS
    ]
    stated = subject.launch_of(Way("p2p", "sbhd", 1, 1))
    return SupportTable(tuple(cells), tuple(by_release), presumed, ages_of(stated))


def _cell(subject: Subject, comm_type: str, layout: str, tp: int, versions: Versions) -> SupportCell:
    first: Answer | None = None
    for size in _sizes(subject, comm_type):
        answer = subject.ask(_way(comm_type, layout, tp, size), versions)
        if answer.is_legal:
            return SupportCell(comm_type, layout, tp, size, (), answer.unknown)
        first = answer
    assert first is not None
    return SupportCell(comm_type, layout, tp, None, first.blocked, ())


def _way(comm_type: str, layout: str, tp: int, size: int) -> Way:
    if comm_type == "a2a+p2p":
        return Way(comm_type, layout, tp, 2 * size, (size, 2))
    return Way(comm_type, layout, tp, size)


def _sizes(subject: Subject, comm_type: str) -> list[int]:
    """Sizes worth querying, largest first: powers of two, and divisors of the heads that a2a splits."""
    heads = subject.stated("heads") or 64
    splits = comm_type.startswith("a2a")
    powers = [2**power for power in range(1, 11) if not splits or 2**power <= heads]
    divisors = [size for size in range(2, min(heads, UNBOUNDED) + 1) if splits and heads % size == 0]
    return sorted({2, *powers, *divisors}, reverse=True)


def _by_release(subject: Subject, name: str, comm_type: str, layout: str, presumed: Versions) -> ByRelease:
    """At the smallest sizes, which are the least restrictive."""
    releases = RELEASES[name]
    others = tuple((other, version) for other, version in presumed if other != name)

    def blocked(release: str) -> tuple[str, ...]:
        return subject.ask(_way(comm_type, layout, 1, 2), (*others, (name, release))).blocked

    return ByRelease(name, comm_type, layout, spans_of(releases, blocked))


def spans_of(releases: tuple[str, ...], blocked: Callable[[str], tuple[str, ...]]) -> tuple[ReleaseSpan, ...]:
    """The runs of releases with the same answer.

    >>> spans_of(("1", "2", "3"), lambda release: ("CP009",) if release == "1" else ())
    (ReleaseSpan(first='1', last='1', blocked=('CP009',)), ReleaseSpan(first='2', last=None, blocked=()))
    """
    spans = []
    for ids, run in groupby(releases, key=blocked):
        held = list(run)
        spans.append(ReleaseSpan(held[0], None if held[-1] == releases[-1] else held[-1], ids))
    return tuple(spans)
