"""Folders as targets of `hcp check`: the launches below them, and one line about all of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from megatron_hcp.cli.reports.words import numbered
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.judge.report import Report
from megatron_hcp.project.walk import changed_since, files_below


class Walk(NamedTuple):
    """The targets with each folder replaced by its files. `found` are those files: they need not be launches."""

    names: tuple[str, ...]
    found: frozenset[str]
    folders: tuple[str, ...]


def walked(names: Sequence[str], changed: str | None) -> Walk:
    """The files that the targets name or hold; with `changed`, those that differ from that revision of git.

    Raises:
        HcpError: a folder can't be walked, or git knows no such revision.
    """
    names = names or ["."]
    folders = [name for name in names if os.path.isdir(name)]
    only = None
    if changed is not None:
        only = frozenset[str]().union(*(changed_since(changed, _folder(name)) for name in names))
    every: dict[str, None] = {}
    found: set[str] = set()
    for name in names:
        if name not in folders:
            if only is None or os.path.abspath(name) in only:
                every[name] = None
            continue
        files = files_below(name, only)
        found.update(file for file in files if file not in every)
        every.update(dict.fromkeys(files))
    return Walk(tuple(every), frozenset(found), tuple(folders))


def _folder(name: str) -> str:
    return name if os.path.isdir(name) else os.path.dirname(os.path.abspath(name))


def is_worth_a_line(report: Report) -> bool:
    """Whether a launch that was found in a folder is shown: there is something to do, or to state."""
    return report.verdict != "ok" or report.num_findings("warning") > 0


def summary(reports: Sequence[Report], unusable: int, others: int, *, strict: bool = False) -> str:
    """`checked 12 launches in 10 files: 2 failed, 1 undecided, 9 ok; 190 other files`."""
    verdicts = Counter("failed" if report.failed(strict) else report.verdict for report in reports)
    files = len({report.launch.reading.target for report in reports})
    counts = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in ("failed", "undecided", "ok"))
    more = f"; {numbered(unusable, 'file')} could not be used" if unusable else ""
    rest = f"; {numbered(others, 'other file')}" if others else ""
    launches = f"{len(reports)} launch{'es' if len(reports) != 1 else ''}"
    return f"checked {launches} in {numbered(files, 'file')}: {counts}{more}{rest}"


def refuse_nothing(walk: Walk, launches: int, errors: Iterable[HcpError], changed: str | None) -> None:
    """Raises if folders were named that hold no launch: nothing was checked, which must not pass."""
    if changed is None and walk.folders and not launches and not list(errors):
        raise HcpError(
            f"found no launch in {', '.join(walk.folders)[:200]} ({numbered(len(walk.found), 'file')} read)",
            wanted="a folder with launches: scripts (.sh, .bash, .sbatch, .slurm) or YAML",
            do="name the folder that holds them",
        )
