"""What the repository says of a check: which rules run, and which findings it accepts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from megatron_hcp.ground.asked import note_file
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import write_whole
from megatron_hcp.ground.repository import repository_root
from megatron_hcp.judge.report import Report
from megatron_hcp.project.baseline import (
    Entry,
    baseline_of,
    baseline_text,
    entry_of,
    is_of_launch,
    stale,
    with_accepted,
)
from megatron_hcp.project.config import Project, project_of
from megatron_hcp.project.place import BASELINE, baseline_root, folder_of, forget_places, path_in

_MOST_STALE = 5


class Choices(NamedTuple):
    """Which rules run on a target: those of the options, else those of its repository."""

    select: str | None
    ignore: str | None


def choices(target: str, select: str | None, ignore: str | None) -> Choices:
    """`--select` wins over `select:`; `--ignore` and `ignore:` add up.

    Raises:
        HcpError: `.hcp.yaml` cannot be used.
    """
    project = project_of(target)
    if project is None:
        return Choices(select, ignore)
    both = ",".join(names for names in (ignore, project.ignore) if names)
    return Choices(project.select if select is None else select, both or None)


def accepted(target: str, report: Report, *, baseline: bool = True) -> Report:
    """The report without the findings that `.hcp.yaml` or, with `baseline`, the baseline accepts.

    Raises:
        HcpError: one of the files cannot be used.
    """
    project, root = _of(target)
    if project is None and root is None:
        return report
    entries = frozenset[Entry]()
    if root is not None and baseline:
        note_file(os.path.join(root, BASELINE))
        entries = baseline_of(root)
    path = path_in(root or (project.root if project else ""), target)
    return with_accepted(report, path, project.accepted if project else (), entries)


def _of(target: str) -> tuple[Project | None, str | None]:
    folder = folder_of(target)
    return project_of(target), None if folder is None else baseline_root(folder)


def entries_of(target: str, report: Report) -> tuple[Entry, ...]:
    """What was found in a launch, accepted or not, as the baseline of its repository has it; none without one."""
    folder = folder_of(target)
    if folder is None or (root := baseline_root(folder)) is None:
        return ()
    path = path_in(root, target)
    return tuple(entry_of(path, one) for one in (*report.findings, *report.accepted))


def stale_notes(found: Iterable[tuple[str, Iterable[Entry]]]) -> list[str]:
    """A line for each entry of a baseline that accepts nothing any more, and one for the rest of them.

    Args:
        found: each target, with its entries as `entries_of` has them.
    """
    by_root: dict[str, tuple[set[str], set[Entry]]] = {}
    for target, entries in found:
        folder = folder_of(target)
        if folder is not None and (root := baseline_root(folder)) is not None:
            paths, all_found = by_root.setdefault(root, (set(), set()))
            paths.add(path_in(root, target))
            all_found.update(entries)
    old = [one for root, (paths, here) in by_root.items() for one in stale(baseline_of(root), paths, here)]
    notes = [f"{BASELINE}: {one.path}: {one.rule} is no longer found" for one in old[:_MOST_STALE]]
    if old:
        more = f"{len(old) - _MOST_STALE} more; " if len(old) > _MOST_STALE else ""
        notes.append(f"{BASELINE}: {more}--write-baseline drops what is no longer found")
    return notes


def write_baseline(reports: Sequence[tuple[str, Report]]) -> tuple[str, int]:
    """Writes every finding of the reports into their repository's baseline; entries of other launches stay.

    Returns the file and how many entries it has.

    Raises:
        HcpError: the launches lie in no repository or in several, or the file cannot be written.
    """
    roots = {repository_root(folder) for target, _ in reports if (folder := folder_of(target)) is not None}
    if len(roots) != 1 or None in roots:
        found = "launches of several repositories" if len(roots) > 1 else "no launch in a repository"
        raise HcpError(
            f"--write-baseline found {found}", wanted="launches of one (.git or pyproject.toml)", do="name them"
        )
    root = str(roots.pop())
    mine = [(path_in(root, target), report) for target, report in reports]
    checked = {path for path, _ in mine}
    entries = {one for one in baseline_of(root) if one.path not in checked}
    entries |= {entry_of(path, one) for path, report in mine for one in report.findings if is_of_launch(one)}
    path = os.path.join(root, BASELINE)
    try:
        write_whole(path, baseline_text(entries))
    except OSError as error:
        raise HcpError(f"cannot write {BASELINE}: {error.strerror}", do="make the folder writable") from None
    baseline_of.cache_clear()
    forget_places()
    return os.path.relpath(path), len(entries)
