"""A check's JSON, cut to fit an agent's context window; it lists what was cut, and `--full` prints everything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from megatron_hcp.cli.reports.json import dump
from megatron_hcp.ground.visible import SHORTENED, shortened

MAX_BYTES = 3_900
"""For a launch with findings or faults or an undecided one; the patch, which the user asked for, does not count."""
MAX_CLEAN = 900
"""For any other launch."""
_SEVERITIES = ("info", "warning", "error")
_LISTS = ("presumed", "backports", "not_checked", "accepted", "facts", "undecided", "findings")


def brief(data: dict[str, Any]) -> dict[str, Any]:
    """The `hcp.check/2` of a launch in few bytes; `cut` lists what was left out.

    The least useful parts are cut first: values presumed from recipes, facts and sources (`hcp show` and
    `hcp explain` print them), and the names of rules that were not checked. Findings are cut last, the least severe
    first; one always stays.
    """
    limit = MAX_BYTES if data["findings"] or data["undecided"] or data.get("faults") else MAX_CLEAN
    whole, data = data, {**data, "findings": [dict(finding) for finding in data["findings"]]}
    steps = _steps(data)
    while _size(data) > limit and next(steps, False):
        data["cut"] = _cuts(data, whole)
    for letters, entries in SHORTENED:
        if _size(data) <= limit:
            break
        note = f"texts and lists: {letters} letters, {entries} entries"
        data = {**shortened(data, letters, entries), "cut": [note, *_cuts(data, whole)], "patch": data["patch"]}
    return data


def _steps(data: dict[str, Any]) -> Iterator[bool]:
    """Each step removes one more item from the data."""
    yield from _shorter(data, "presumed")
    for name, empty in (("facts", {}), ("accepted", [])):
        data[name] = empty
        yield True
    for finding in data["findings"]:
        del finding["source"]
    yield True
    yield from _shorter(data, "not_checked")
    yield from _shorter(data, "backports")
    for finding in data["findings"]:
        finding["presumed"] = []
    yield True
    yield from _shorter(data, "undecided", least=1)
    while len(data["findings"]) > 1:
        mildest = min(data["findings"][::-1], key=lambda finding: _SEVERITIES.index(finding["severity"]))
        data["findings"] = [finding for finding in data["findings"] if finding is not mildest]
        yield True


def _shorter(data: dict[str, Any], name: str, least: int = 0) -> Iterator[bool]:
    while len(data[name]) > least:
        data[name] = data[name][:-1]
        yield True


def _cuts(data: dict[str, Any], whole: dict[str, Any]) -> list[str]:
    said = [f"{name}: {len(data[name])} of {len(whole[name])}" for name in _LISTS if len(data[name]) < len(whole[name])]
    lost = {key for finding in whole["findings"] for key in ("presumed", "source") if finding[key]}
    kept = {key for finding in data["findings"] for key in ("presumed", "source") if finding.get(key)}
    said += [f"findings[].{key}: {'hcp explain RULE' if key == 'source' else 'none'}" for key in sorted(lost - kept)]
    return [*said, "all of it: add --full"]


def _size(data: dict[str, Any]) -> int:
    return len(dump({**data, "patch": None}).encode())
