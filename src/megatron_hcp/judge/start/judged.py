"""Which code of upstream judges a launch: the user's own, or hcp's tables of the release that the launch states."""

from __future__ import annotations

from functools import cache

from megatron_hcp.launch.fact import Launch, UpstreamTree
from megatron_hcp.validators.outcome import Judged
from megatron_hcp.validators.program import Program
from megatron_hcp.validators.start import judge_start


def judgements(launch: Launch) -> tuple[Judged, ...]:
    """What upstream's start-up makes of the launch, by release: one if it is stated, else all, oldest first."""
    own = [judged for tree in launch.reading.upstream if (judged := _by_tree(launch, tree)) is not None]
    if own:
        return tuple(own[-1:])
    return tuple(judged for release in releases_of(launch) if (judged := judge_start(launch, release)) is not None)


def _by_tree(launch: Launch, tree: UpstreamTree) -> Judged | None:
    return judge_start(launch, tree.release or "", program=_program(tree))


@cache
def _program(tree: UpstreamTree) -> Program:
    from megatron_hcp.validators.checkout import program_of_folder

    return program_of_folder(tree.path)


def releases_of(launch: Launch) -> tuple[str, ...]:
    """The releases in the tables that the launch may run: the one that it states, else all that have its options."""
    return ()
