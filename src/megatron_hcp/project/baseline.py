"""Findings that a repository accepts: by `accept:` in `.hcp.yaml`, and by the baseline that hcp writes.

A baseline holds no line numbers: a finding stays accepted while its rule, its keys and what was found stay the same.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

from megatron_hcp.ground.below import file_below
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.secrets import without_secrets
from megatron_hcp.ground.visible import visible
from megatron_hcp.judge.report import Finding, Report
from megatron_hcp.project.config import Accepted
from megatron_hcp.project.place import BASELINE

SCHEMA = "hcp.baseline/1"
_WANTED = f"a baseline of the schema {SCHEMA}"
_MOST_BYTES = 20_000_000


class Entry(NamedTuple):
    """One accepted finding. `path` is the launch's, from the repository's root; `guard` is a START rule's, or ""."""

    path: str
    rule: str
    guard: str
    keys: tuple[str, ...]
    found: str


def entry_of(path: str, finding: Finding) -> Entry:
    """How a baseline writes a finding; secrets are masked, as wherever text of a launch is written."""
    found = without_secrets(visible(finding.problem.found))
    return Entry(path, finding.rule.id, finding.problem.guard, tuple(sorted(finding.keys)), found)


def is_of_launch(finding: Finding) -> bool:
    """Whether a finding may be accepted: not one about a comment that accepts nothing, which is to be removed."""
    return not finding.rule.last


@cache
def baseline_of(root: str) -> frozenset[Entry]:
    """The entries of the repository's baseline; none if it has no such file.

    Raises:
        HcpError: it can't be read, or isn't of the schema.
    """
    path = file_below(root, BASELINE, _WANTED)
    if path is None:
        return frozenset()
    import json

    from megatron_hcp.ground.files import read_text
    from megatron_hcp.ground.schema import STRING, TEXT, TEXTS, Fields, ListOf, checked, one_of

    name = visible(os.path.relpath(path))
    try:
        data = json.loads(read_text(path, _WANTED, limit=_MOST_BYTES))
    except (ValueError, RecursionError):
        raise HcpError(f"{name} is not JSON", wanted=_WANTED, do="write it again with --write-baseline") from None
    item = Fields({"path": TEXT, "rule": TEXT, "keys": TEXTS, "found": STRING}, {"guard": TEXT})
    checked(data, Fields({"schema": one_of((SCHEMA,)), "findings": ListOf(item)}), name)
    return frozenset(
        Entry(one["path"], one["rule"], one.get("guard") or "", tuple(sorted(one["keys"])), one["found"])
        for one in data["findings"]
    )


def with_accepted(report: Report, path: str, accepted: Sequence[Accepted], baseline: frozenset[Entry]) -> Report:
    """The report without the findings that the repository accepts; they move to `accepted`."""
    rules = {one.rule for one in accepted}
    taken = [
        one for one in report.findings if is_of_launch(one) and (one.id in rules or entry_of(path, one) in baseline)
    ]
    if not taken:
        return report
    kept = tuple(one for one in report.findings if one not in taken)
    return report._replace(findings=kept, accepted=(*report.accepted, *taken))


def stale(entries: Iterable[Entry], paths: Collection[str], found: Collection[Entry]) -> list[Entry]:
    """The entries of launches that were checked, at these paths, which accept nothing any more; sorted."""
    return sorted(one for one in entries if one.path in paths and one not in found)


def baseline_text(entries: Iterable[Entry]) -> str:
    """The file with these entries."""
    import json

    rows: list[dict[str, Any]] = []
    for one in sorted(set(entries)):
        row = one._asdict() | {"keys": list(one.keys)}
        rows.append(row if one.guard else {name: value for name, value in row.items() if name != "guard"})
    lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in rows)
    return (
        f'{{\n"schema": "{SCHEMA}",\n"findings": [\n{lines}\n]\n}}\n'
        if rows
        else f'{{"schema": "{SCHEMA}", "findings": []}}\n'
    )
