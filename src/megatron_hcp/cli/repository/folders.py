"""Folders as targets of `hcp check`: the launches below them, and one line about all of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

from megatron_hcp.cli.reports.words import numbered
from megatron_hcp.cli.repository.result import TargetResult, Walk
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.project.walk import changed_since, files_below


def walked(names: Sequence[str], changed: str | None) -> Walk:
    """The files that the targets name or hold.

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
            every[name] = None
            continue
        files = files_below(name)
        found.update(file for file in files if file not in every)
        every.update(dict.fromkeys(files))
    return Walk(tuple(every), frozenset(found), tuple(folders), only)


def _folder(name: str) -> str:
    return name if os.path.isdir(name) else os.path.dirname(os.path.abspath(name))


def of_changed(results: Sequence[TargetResult], changed: frozenset[str] | None) -> list[TargetResult]:
    """The results that depend on a changed file: the launch itself, or one that was read or looked for with it."""
    if changed is None:
        return list(results)
    return [one for one in results if os.path.abspath(one.target) in changed or not changed.isdisjoint(one.paths)]


def summary(results: Sequence[TargetResult], others: int, *, strict: bool = False) -> str:
    """`checked 12 launches in 10 files: 2 failed, 1 undecided, 9 ok; 190 other files`."""
    launches = [one for one in results if one.error is None]
    verdicts = Counter(one.verdict(strict) for one in launches)
    counts = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in ("failed", "undecided", "ok"))
    unusable = len(results) - len(launches)
    more = f"; {numbered(unusable, 'file')} could not be used" if unusable else ""
    accepted = sum(one.num_accepted for one in launches)
    more += f"; {numbered(accepted, 'accepted finding')}" if accepted else ""
    rest = f"; {numbered(others, 'other file')}" if others else ""
    many = f"{len(launches)} launch{'es' if len(launches) != 1 else ''}"
    return f"checked {many} in {numbered(len({one.target for one in launches}), 'file')}: {counts}{more}{rest}"


def refuse_nothing(walk: Walk, results: Sequence[TargetResult]) -> None:
    """Raises if folders were named that hold no launch: nothing was checked, which must not pass."""
    if walk.changed is None and walk.folders and not results:
        raise HcpError(
            f"found no launch in {', '.join(walk.folders)[:200]} ({numbered(len(walk.found), 'file')} read)",
            wanted="a folder with launches: scripts (.sh, .bash, .sbatch, .slurm) or YAML",
            do="name the folder that holds them",
        )
