"""Checks the targets of `hcp check`, one after the other, each by what its repository says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from megatron_hcp.cli.screen import ProgressLine, say
from megatron_hcp.ground.errors import HcpError, UnrecognisedError
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.load import LoadOptions, load_launches
from megatron_hcp.project.place import has_baseline, has_project

if TYPE_CHECKING:
    from megatron_hcp.cli.repository.folders import Walk
    from megatron_hcp.judge.report import Report


class TargetResult(NamedTuple):
    """One target's report, or the error that says why it could not be used."""

    target: str
    report: Report | None
    error: HcpError | None = None


class Asked(NamedTuple):
    """How each target is checked."""

    options: LoadOptions
    select: str | None
    ignore: str | None


def walk_of(names: Sequence[str], changed: str | None) -> Walk | None:
    if changed is None and not any(name and os.path.isdir(name) for name in names):
        return None
    from megatron_hcp.cli.repository.folders import walked

    return walked(names, changed)


def checked(names: Sequence[str], asked: Asked) -> list[TargetResult]:
    """A result for each launch of the targets."""
    line = ProgressLine(first_s=1, pause_s=0.2)
    results: list[TargetResult] = []
    for number, name in enumerate(names):
        if len(names) > 1:
            line.show(f"{number} of {len(names)} files read")
        results += _results(name, asked)
    line.clear()
    return results


def _results(name: str, asked: Asked) -> list[TargetResult]:
    """A result for each launch of a target."""
    from megatron_hcp.judge.engine import check_launch
    from megatron_hcp.rules.registry import selected

    select, ignore = asked.select, asked.ignore
    try:
        if asked.options.find_project is not None and has_project(name):
            from megatron_hcp.project.accepting import choices

            select, ignore = choices(name, select, ignore)
        launches = load_launches(name, asked.options)
    except HcpError as error:
        return [TargetResult(name, None, error)]
    rules = selected(select, ignore)
    return [TargetResult(name, check_launch(launch, rules)) for launch in launches]


def with_baseline(results: list[TargetResult], asked: Asked, write: bool) -> list[TargetResult]:
    """The results without what their repositories accept; writes the baseline first if it was asked for."""
    checked_ones = [item.target for item in results if item.report is not None]
    if not write and not any(has_project(name) or has_baseline(name) for name in checked_ones):
        return results
    from megatron_hcp.project.accepting import accepted, stale_notes, write_baseline

    def without(baseline: bool) -> list[TargetResult]:
        return [
            item._replace(report=accepted(item.target, item.report, baseline=baseline)) if item.report else item
            for item in results
        ]

    if write:
        file, entries = write_baseline([(item.target, item.report) for item in without(False) if item.report])
        say([f"hcp: wrote {file}: {entries} accepted findings"], err=True)
    elif asked.select is None and asked.ignore is None:
        notes = stale_notes([(item.target, item.report) for item in results if item.report])
        say((f"hcp: note: {note}" for note in notes), err=True)
    return without(True)


def fix_files(names: Sequence[str], asked: Asked) -> None:
    """Writes fixes into the targets, and says on standard error what was changed and what was not.

    Raises:
        HcpError: none of them is a file, or one cannot be written.
    """
    if not any(map(os.path.isfile, names)):
        raise HcpError("found --fix without a file", wanted="a launch in a file", do="name it, or use --diff")
    from megatron_hcp.cli.repository.fixing import fix_file
    from megatron_hcp.rules.registry import RULES

    for name in names:
        if not os.path.isfile(name):
            continue
        done = fix_file(name, partial(_reports, name, asked), RULES)
        say((f"hcp: fixed {name}: {rule}: {effect}" for rule, effect in done.made), err=True)
        say((f"hcp: not fixed {name}: {rule}: {reason}" for rule, reason in done.left_out), err=True)


def _reports(name: str, asked: Asked) -> list[Report]:
    return [one.report for one in _results(name, asked) if one.report is not None]


def is_another_file(item: TargetResult, found: frozenset[str]) -> bool:
    """Whether a file that a folder holds is no launch."""
    return item.target in found and isinstance(item.error, UnrecognisedError)
