"""Which code of upstream judges a launch: the user's own, or hcp's tables of the release that the launch states."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache

from megatron_hcp.launch.fact import Launch, UpstreamTree
from megatron_hcp.launch.facts.known_options import all_options, revision_of, revisions_with
from megatron_hcp.launch.facts.last_read import BRANCHES
from megatron_hcp.rules.view import Unknown, View
from megatron_hcp.validators.outcome import Judgement
from megatron_hcp.validators.program import StartProgram
from megatron_hcp.validators.start import judge_start

MINORS = ("0.12.3", "0.13.1", "0.14.0", "0.15.3", "0.16.1", "0.17.1", "0.18.2", "0.19.0")
"""The releases that judge a launch without one: the last of each minor version in the tables, oldest first."""


def judgements(launch: Launch) -> tuple[Judgement, ...]:
    """What upstream's start-up makes of the launch: one outcome, or by release, oldest first.

    If the launch states no release, the newest one that has its options judges it, with those whose older guards may
    refuse it, and the others only if one of these does: a check stays quick. Options that no release has yet are a
    branch's.
    """
    stated = _by_the_stated(launch)
    if stated is not None:
        return stated
    releases = releases_with(launch)
    asked = (*(release for release in releases[:-1] if release in _with_older_guards(launch)), *releases[-1:])
    first = {release: _judged(launch, (release,)) for release in asked}
    if not any(one.refusals for outcome in first.values() for one in outcome):
        return first[releases[-1]] if releases else ()
    every = (first.get(release) or _judged(launch, (release,)) for release in releases)
    return tuple(one for outcome in every for one in outcome)


def newest_first(launch: Launch) -> Iterator[Judgement]:
    """The outcome of every release that may judge the launch, each worked out when it is asked for."""
    stated = _by_the_stated(launch)
    if stated is not None:
        yield from stated
        return
    for release in releases_with(launch)[::-1]:
        yield from _judged(launch, (release,))


def _by_the_stated(launch: Launch) -> tuple[Judgement, ...] | None:
    """The outcome of the user's own tree, or of the release that the launch states; None without them."""
    for tree in reversed(launch.reading.upstream):
        judged = judge_start(launch, tree.release or "", program=_program(tree))
        if judged is not None:
            return (judged,)
    return _judged(launch, (_stated(launch),)) if View(launch).known("mcore") else None


def judged_again(launch: Launch, judged: Judgement) -> Judgement | None:
    """What the same code makes of a launch that differs in some settings."""
    program = program_of(launch, judged) if judged.source == "upstream" else None
    return judge_start(launch, judged.release, program=program)


def program_of(launch: Launch, judged: Judgement) -> StartProgram | None:
    """The program that judged the launch."""
    if judged.source == "table":
        from megatron_hcp.validators.table import program_of_release

        return program_of_release("megatron-lm", judged.release)
    return next((_program(tree) for tree in reversed(launch.reading.upstream)), None)


def releases_with(launch: Launch) -> tuple[str, ...]:
    """The releases that have all options of the launch, oldest first, else the branches; what neither has, another
    program adds."""
    known = all_options()
    have = {revisions_with(item.key) for item in launch.reading.settings if item.key in known}

    def with_all(revisions: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in revisions if all(name in having for having in have))

    return with_all(MINORS) or with_all(BRANCHES)


def _with_older_guards(launch: Launch) -> frozenset[str]:
    """The releases that are the last to have a guard about an option that the launch writes."""
    written = {setting.key for setting in launch.reading.settings}
    return frozenset(release for release, options in _older_guards().items() if not written.isdisjoint(options))


@cache
def _older_guards() -> dict[str, tuple[str, ...]]:
    """By release, options of guards that no later one has: see lab/lib/older_guards.py."""
    with open(os.path.join(os.path.dirname(__file__), "older_guards.txt"), encoding="utf-8") as file:
        rows = [line.split() for line in file.read().splitlines() if not line.startswith("#")]
    return {release: tuple(options) for release, *options in rows}


def _stated(launch: Launch) -> str | None:
    """The release or branch in the tables that the launch states; None if they don't have it."""
    view = View(launch)
    try:
        return revision_of(view.release("mcore"), view.get("mcore_branch", BRANCHES[0]))
    except Unknown:
        return None


def _judged(launch: Launch, releases: tuple[str | None, ...]) -> tuple[Judgement, ...]:
    found = (judge_start(launch, release) for release in releases if release is not None)
    return tuple(judged for judged in found if judged is not None)


@cache
def _program(tree: UpstreamTree) -> StartProgram:
    if tree.cached:
        from megatron_hcp.validators.kept import program_of_tree

        return program_of_tree(tree.path)
    from megatron_hcp.validators.checkout import program_of_folder

    return program_of_folder(tree.path)
