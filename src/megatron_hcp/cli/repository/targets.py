"""Checks the targets of `hcp check`, one after the other, each by what its repository says."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from megatron_hcp.cli.repository.result import Asked, TargetResult
from megatron_hcp.cli.screen import ProgressLine, say
from megatron_hcp.ground.errors import HcpError, UnrecognisedError
from megatron_hcp.launch.load import load_launches
from megatron_hcp.project.place import has_baseline, has_project

if TYPE_CHECKING:
    from megatron_hcp.cli.repository.kept import Keeper, KeptReport
    from megatron_hcp.cli.repository.result import Walk
    from megatron_hcp.judge.report import Report
    from megatron_hcp.project.baseline import Entry
    from megatron_hcp.rules.rule import Severity


def walk_of(names: Sequence[str], changed: str | None) -> Walk | None:
    if changed is None and not any(name and os.path.isdir(name) for name in names):
        return None
    from megatron_hcp.cli.repository.folders import walked

    return walked(names, changed)


def checked(names: Sequence[str], asked: Asked) -> list[TargetResult]:
    """A result for each launch of the targets."""
    line = ProgressLine(first_s=1, pause_s=0.2)
    results: list[TargetResult] = []
    keeper = _keeper(asked) if asked.form is not None and len(names) > 1 else None
    if keeper is not None:
        _keep_answers(names, asked, keeper, line)
    for number, name in enumerate(names):
        if len(names) > 1:
            line.show(_progress(number, names))
        if keeper is not None or asked.records:
            results += _recorded(name, asked, keeper)
        else:
            results += _results(name, asked)
    if keeper is not None:
        keeper.close()
    line.clear()
    return results


def _keeper(asked: Asked) -> Keeper | None:
    """What keeps the answers; None if they depend on more than files: on code of upstream, on what is installed."""
    options = asked.options
    if options.upstream or "installed" in options.assumes:
        return None
    from megatron_hcp.cli.repository.kept import Keeper

    finds = options.find_project is not None
    return Keeper((repr(options._replace(find_project=None)), repr((finds, asked.select, asked.ignore)), asked.about))


def _progress(number: int, names: Sequence[str]) -> str:
    return f"{number} of {len(names)} files read"


def _keep_answers(names: Sequence[str], asked: Asked, keeper: Keeper, line: ProgressLine) -> None:
    """Has all cores answer what the cache doesn't know of the files, if there are many and it can be written."""
    from megatron_hcp.cli.repository.workers import share_out
    from megatron_hcp.ground.cache import is_writable

    def answer(share: Iterable[str]) -> None:
        for name in share:
            _recorded(name, asked, keeper)
        keeper.close()

    if is_writable():
        unknown = [name for name in names if os.path.isfile(name) and keeper.answer(name) is None]
        num_known = len(names) - len(unknown)
        share_out(unknown, answer, lambda count: line.show(_progress(num_known + count, names)))


def _recorded(name: str, asked: Asked, keeper: Keeper | None) -> list[TargetResult]:
    """The results of a target with the files that they depend on; from the cache if it has them."""
    from megatron_hcp.cli.repository.kept import KeptAnswer
    from megatron_hcp.ground.asked import recording

    answer = keeper.answer(name) if keeper is not None else None
    if answer is not None:
        if answer.error is not None:
            return [TargetResult(name, None, answer.error, answer.paths)]
        return [TargetResult(name, None, None, answer.paths, said) for said in answer.said]
    with recording() as made:
        results = _results(name, asked)
        said = tuple(_said(item, asked) for item in results if item.report is not None) if keeper is not None else ()
    paths = tuple(sorted(made.paths))
    if keeper is not None:
        keeper.add(name, KeptAnswer(said, results[0].error, paths), made)
    return [item._replace(paths=paths) for item in results]


def _said(item: TargetResult, asked: Asked) -> KeptReport:
    from megatron_hcp.cli.repository.kept import KeptReport

    assert asked.form is not None
    verdict, is_shown = item.verdict(asked.strict), item.is_worth_a_line(asked.strict)
    return KeptReport(verdict, is_shown, asked.form(item), item.num_accepted, _entries(item))


def _results(name: str, asked: Asked) -> list[TargetResult]:
    """A result for each launch of a target, without what its repository accepts."""
    from megatron_hcp.judge.engine import check_launch
    from megatron_hcp.rules.registry import selected

    select, ignore = asked.select, asked.ignore
    finds = asked.options.find_project is not None
    try:
        if finds and has_project(name):
            from megatron_hcp.project.accepting import choices
            from megatron_hcp.project.config import forget_launches

            forget_launches()
            select, ignore = choices(name, select, ignore)
        launches = load_launches(name, asked.options)
    except HcpError as error:
        return [TargetResult(name, None, error)]
    rules = selected(select, ignore)
    results = [TargetResult(name, check_launch(launch, rules)) for launch in launches]
    if finds and (has_project(name) or has_baseline(name)):
        from megatron_hcp.project.accepting import accepted

        results = [
            item._replace(report=accepted(name, item.report, baseline=asked.accepts)) if item.report else item
            for item in results
        ]
    return results


def _entries(item: TargetResult) -> tuple[Entry, ...]:
    """The findings as a baseline has them, if there is one."""
    if item.report is None or not has_baseline(item.target):
        return item.kept.entries if item.kept is not None else ()
    from megatron_hcp.project.accepting import entries_of

    return entries_of(item.target, item.report)


def with_baseline(results: list[TargetResult], asked: Asked) -> list[TargetResult]:
    """Writes the baseline; returns the results without what it then accepts."""
    from megatron_hcp.cli.reports.text import SEVERITIES
    from megatron_hcp.cli.reports.words import numbered
    from megatron_hcp.project.accepting import accepted, write_baseline

    file, entries = write_baseline([(item.target, item.report) for item in results if item.report])
    after = [item._replace(report=accepted(item.target, item.report)) if item.report else item for item in results]
    taken = {severity: _num_findings(results, severity) - _num_findings(after, severity) for severity in SEVERITIES}
    counts = ", ".join(numbered(count, severity) for severity, count in taken.items())
    many = numbered(entries, "entry", "entries")
    say([f"hcp: wrote {file}: {sum(taken.values())} accepted ({counts}); {many} in all"], err=True)
    return after


def _num_findings(results: Sequence[TargetResult], severity: Severity) -> int:
    return sum(item.report.num_findings(severity) for item in results if item.report)


def note_stale(results: Sequence[TargetResult]) -> None:
    """Says on standard error which entries of a baseline accept nothing any more."""
    launches = [item for item in results if item.error is None]
    if not any(has_baseline(item.target) for item in launches):
        return
    from megatron_hcp.project.accepting import stale_notes

    notes = stale_notes((item.target, _entries(item)) for item in launches)
    say((f"hcp: note: {note}" for note in notes), err=True)


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
