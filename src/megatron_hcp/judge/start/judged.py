"""Which code of upstream judges a launch: the user's own, or hcp's tables of the release that the launch states."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain

from megatron_hcp.launch.fact import Launch, UpstreamTree
from megatron_hcp.launch.facts.known_options import all_options, revision_of, revisions_with
from megatron_hcp.launch.facts.last_read import BRANCHES
from megatron_hcp.rules.view import Unknown, View
from megatron_hcp.validators.outcome import Judgement
from megatron_hcp.validators.program import StartProgram
from megatron_hcp.validators.start import judge_start
from megatron_hcp.validators.upstreams import (
    MEGATRON_BRIDGE,
    MEGATRON_LM,
    ValidatingRepo,
    bridge_with,
    revision_in,
    upstreams_of,
)

Speaks = Callable[[Judgement], bool]
"""Whether a finding comes of an outcome."""


def judgements(launch: Launch, speaks: Speaks) -> list[tuple[Judgement, ...]]:
    """What upstream's start-up makes of the launch, by repository: one outcome, or by release, oldest first.

    If the launch states no release, the newest one that has its options judges it, with those whose older guards may
    refuse it, and the others only if one of these has something to say: a check stays quick. Options that no release
    has yet are a branch's.
    """
    return [judged for upstream in _reading(launch) if (judged := _judged_by(launch, upstream, speaks))]


def _judged_by(launch: Launch, upstream: ValidatingRepo, speaks: Speaks) -> tuple[Judgement, ...]:
    """What one upstream's validators make of the launch."""
    stated = _by_the_stated(launch, upstream)
    if stated is not None:
        return stated
    releases = _in_question(launch, upstream)
    older = _with_older_guards(launch) if upstream == MEGATRON_LM else frozenset()
    asked = (*(release for release in releases[:-1] if release in older), *releases[-1:])
    first = {release: _judged(launch, upstream, (release,)) for release in asked}
    if not any(speaks(one) for outcome in first.values() for one in outcome):
        return first[releases[-1]] if releases else ()
    every = (first.get(release) or _judged(launch, upstream, (release,)) for release in _and_main(upstream, releases))
    return tuple(one for outcome in every for one in outcome)


def _and_main(upstream: ValidatingRepo, releases: tuple[str, ...]) -> tuple[str, ...]:
    """The releases, and the main branch where no parser shows that a value is newer than they are, as Megatron-LM's
    does: what all releases refuse may have come since."""
    is_shown = upstream.repo in (MEGATRON_LM.repo, MEGATRON_BRIDGE.repo) or releases[-1:] == BRANCHES[:1]
    return releases if is_shown else (*releases, BRANCHES[0])


def newest_first(launch: Launch) -> Iterator[Iterator[Judgement]]:
    """By repository, the outcome of every release that may judge the launch, each worked out when it is asked for."""
    for upstream in _reading(launch):
        stated = _by_the_stated(launch, upstream)
        releases = _in_question(launch, upstream)[::-1] if stated is None else ()
        branch = () if stated is not None else _and_main(upstream, releases[:1])[1:]
        yield chain(stated or (), _each(launch, upstream, (*releases, *branch)))


def _each(launch: Launch, upstream: ValidatingRepo, releases: tuple[str, ...]) -> Iterator[Judgement]:
    for release in releases:
        yield from _judged(launch, upstream, (release,))


def _reading(launch: Launch) -> tuple[ValidatingRepo, ...]:
    """The upstreams that judge the launch; none if what one of two makes of the arguments isn't known."""
    upstreams = upstreams_of(launch)
    is_known = len(upstreams) < 2 or all(beside_of(launch, upstream.repo) for upstream in upstreams)
    return upstreams if is_known else ()


def _by_the_stated(launch: Launch, upstream: ValidatingRepo) -> tuple[Judgement, ...] | None:
    """The outcome of the user's own tree, or of the release that the launch states; None without them."""
    tree = _tree(launch, upstream.repo)
    if tree is not None:
        beside = beside_of(launch, upstream.repo)
        judged = judge_start(launch, tree.release or "", program=_program(tree), beside=beside)
        return () if judged is None else (judged,)
    if View(launch).known(upstream.fact) or (upstream is MEGATRON_BRIDGE and View(launch).known("mcore")):
        return _judged(launch, upstream, (_stated(launch, upstream),))
    return None


def judged_by_newer(launch: Launch, judged: Judgement) -> list[Judgement]:
    """What newer releases of the tables make of a launch that an older one judged by the launch's statement, newest
    first: the newest one that has its options, and those that are the last to have a guard about one of them."""
    from megatron_hcp.validators.table import releases_of

    upstream = next((one for one in _reading(launch) if one.repo == judged.repo), None)
    if upstream is None or judged.source != "table" or judged.release not in (order := releases_of(upstream.repo)):
        return []
    after = order[order.index(judged.release) + 1 : order.index(upstream.releases[-1]) + 1]
    newer = [release for release in _in_question(launch, upstream) if release in after]
    older = _with_older_guards(launch) if upstream.repo == MEGATRON_LM.repo else frozenset()
    asked = (*newer[-1:], *(release for release in newer[-2::-1] if release in older))
    return [*_judged(launch, upstream, asked)]


def _in_question(launch: Launch, upstream: ValidatingRepo) -> tuple[str, ...]:
    """The releases that may judge a launch which states none, oldest first."""
    is_megatron = upstream.repo == MEGATRON_LM.repo
    releases = _parsing(launch, releases_with(launch, upstream.releases)) if is_megatron else upstream.releases
    # A recipe's settings are those of the newest release.
    return releases[-1:] if launch.reading.recipe is not None else releases


def _parsing(launch: Launch, releases: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the releases, else the branches, whose parser takes the launch's values; all if none does."""
    from megatron_hcp.rules.key.unfit import unfit

    refusing = {revision for one in unfit(View(launch), "choice") for revision in one.refusing}
    if refusing.isdisjoint(releases):
        return releases
    return next(
        filter(None, (tuple(n for n in names if n not in refusing) for names in (releases, BRANCHES))), releases
    )


def judged_again(launch: Launch, judged: Judgement, most_steps: int) -> Judgement | None:
    """What the same code makes of a launch that differs in some settings; None if it takes more steps."""
    program = program_of(launch, judged) if judged.source == "upstream" else None
    beside = beside_of(launch, judged.repo)
    return judge_start(launch, judged.release, repo=judged.repo, program=program, beside=beside, most_steps=most_steps)


def program_of(launch: Launch, judged: Judgement) -> StartProgram | None:
    """The program that judged the launch."""
    if judged.source == "table":
        from megatron_hcp.validators.table import program_of_release

        return program_of_release(judged.repo, judged.release)
    tree = _tree(launch, judged.repo)
    return None if tree is None else _program(tree)


def releases_with(launch: Launch, releases: tuple[str, ...] = MEGATRON_LM.releases) -> tuple[str, ...]:
    """Those of the releases that have all options of the launch, oldest first, else any release, else the branches;
    what none has, another program adds."""
    known = all_options()
    have = {revisions_with(item.key) for item in launch.reading.settings if item.key in known}

    def with_all(revisions: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in revisions if all(name in having for having in have))

    return with_all(releases) or with_all(MEGATRON_LM.releases) or with_all(BRANCHES)


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


def _stated(launch: Launch, upstream: ValidatingRepo) -> str | None:
    """The release or branch in the tables that the launch states; None if they don't have it."""
    view = View(launch)
    try:
        if upstream is MEGATRON_BRIDGE and not view.known("bridge"):
            return bridge_with(view.release("mcore"))
        release = view.release(upstream.fact)
        if upstream.repo == MEGATRON_LM.repo:
            return revision_of(release, view.get("mcore_branch", BRANCHES[0]))
        return revision_in(upstream, release)
    except Unknown:
        return None


def _judged(launch: Launch, upstream: ValidatingRepo, releases: tuple[str | None, ...]) -> tuple[Judgement, ...]:
    beside = beside_of(launch, upstream.repo)
    found = (
        judge_start(launch, release, repo=upstream.repo, beside=beside) for release in releases if release is not None
    )
    return tuple(judged for judged in found if judged is not None)


def beside_of(launch: Launch, repo: str) -> StartProgram | None:
    """The other program of a launch that two upstreams parse: of slime's Megatron-LM's, of Megatron-LM's slime's."""
    from megatron_hcp.validators.table import program_of_release

    other = next((upstream for upstream in upstreams_of(launch) if upstream.repo != repo), None)
    if other is None:
        return None
    tree = _tree(launch, other.repo)
    if tree is not None:
        return _program(tree)
    if View(launch).known(other.fact):
        release = _stated(launch, other)
    else:
        release = next(reversed(_in_question(launch, other)), None)
    return None if release is None else program_of_release(other.repo, release)


def _tree(launch: Launch, repo: str) -> UpstreamTree | None:
    """The tree of a repository that the user named last; not a Bridge checkout without its submodule, Megatron-LM."""
    tree = next((tree for tree in reversed(launch.reading.upstream) if tree.repo == repo), None)
    return tree if tree is None or repo != MEGATRON_BRIDGE.repo or _has_core(tree) else None


@cache
def _has_core(tree: UpstreamTree) -> bool:
    from megatron_hcp.validators.reader.checkout import roots_of, texts_of

    return texts_of(tree.path, roots_of(tree.repo))("megatron/core/package_info.py") is not None


@cache
def _program(tree: UpstreamTree) -> StartProgram:
    if tree.cached:
        from megatron_hcp.validators.reader.kept import program_of_tree

        return program_of_tree(tree.path, tree.repo)
    from megatron_hcp.validators.reader.checkout import program_of_folder

    return program_of_folder(tree.path, tree.repo)
