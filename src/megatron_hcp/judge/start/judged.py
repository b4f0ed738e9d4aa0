"""Which code of upstream judges a launch: the user's own, or hcp's tables of the release that the launch states."""

from __future__ import annotations

from functools import cache

from megatron_hcp.launch.fact import Launch, UpstreamTree
from megatron_hcp.judge.start.releases import releases_with, stated_release, states_release
from megatron_hcp.validators.outcome import Judgement
from megatron_hcp.validators.program import StartProgram
from megatron_hcp.validators.start import REPOSITORIES, judge_start

def judgements(launch: Launch) -> tuple[Judgement, ...]:
    """What upstream's start-up makes of the launch: one outcome, or by release, oldest first.

    If the launch states no release, the newest one that has its options judges it, and the others only if that one
    refuses it: a check stays quick.
    """
    own = _own_program(launch)
    if own is not None:
        judged = judge_start(launch, own.release, program=own)
        return () if judged is None else (judged,)
    if states_release(launch):
        return _judged(launch, (stated_release(launch),))
    releases = releases_with(launch)
    newest = _judged(launch, releases[-1:])
    if not newest or not newest[0].refusals:
        return newest
    return (*_judged(launch, releases[:-1]), *newest)


def judged_again(launch: Launch, judged: Judgement) -> Judgement | None:
    """What the same code makes of a launch that differs in some settings."""
    program = program_of(launch, judged) if judged.source == "upstream" else None
    return judge_start(launch, judged.release, program=program)


def program_of(launch: Launch, judged: Judgement) -> StartProgram | None:
    """The program that judged the launch."""
    if judged.source == "table":
        from megatron_hcp.validators.table import program_of_release

        return program_of_release(REPOSITORIES[launch.dialect], judged.release)
    return _own_program(launch)


def _own_program(launch: Launch) -> StartProgram | None:
    """The program of the user's own code, if a tree of the upstream is named that starts the launch."""
    repo = REPOSITORIES.get(launch.dialect)
    return next((_program(tree) for tree in reversed(launch.reading.upstream) if tree.repo == repo), None)


def _judged(launch: Launch, releases: tuple[str | None, ...]) -> tuple[Judgement, ...]:
    found = (judge_start(launch, release) for release in releases if release is not None)
    return tuple(judged for judged in found if judged is not None)


@cache
def _program(tree: UpstreamTree) -> StartProgram:
    if tree.cached:
        from megatron_hcp.validators.kept import program_of_tree

        return program_of_tree(tree.path, tree.repo)
    from megatron_hcp.validators.checkout import program_of_folder

    return program_of_folder(tree.path, tree.repo)
