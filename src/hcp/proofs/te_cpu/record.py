"""The record of all releases: one line per case and run of releases that behave alike, as JSON.

{"schema": "hcp.te-cpu/1", "releases": [...], "cases": {"p2p, sbhd, cuDNN, causal": [{"since", "verdict", …}, …]}}

`verdict` is what a user of DotProductAttention gets; `not_chosen` why the choice of the backend leaves the kernel out;
`behind` and `text` what the attention does if it is called anyway. Equal neighbours are one entry, `since` the
first release.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from packaging.version import Version

from hcp.proofs.te_cpu.execute import Result

SCHEMA = "hcp.te-cpu/1"


class Entry(NamedTuple):
    """How a release handles a case."""

    verdict: str
    not_chosen: str
    behind: str
    text: str


Entries = dict[str, Entry]
"""How a release handles each case, by the case's name."""


def entries_of(results: Iterable[Result]) -> Entries:
    """What goes into the record of a release's results."""
    return {
        str(result.case): Entry(result.verdict, result.not_chosen, result.outcome.verdict, result.outcome.text)
        for result in results
    }


def record_of(by_release: Mapping[str, Entries]) -> dict[str, Any]:
    """The record of some releases."""
    releases = sorted(by_release, key=Version)
    cases: dict[str, list[dict[str, str]]] = {}
    last: Entries = {}
    for release in releases:
        for case, entry in by_release[release].items():
            if last.get(case) != entry:
                last[case] = entry
                cases.setdefault(case, []).append({"since": release, **entry._asdict()})
    return {"schema": SCHEMA, "releases": releases, "cases": cases}


def by_release(record: Mapping[str, Any]) -> dict[str, Entries]:
    """The inverse: how each release of a record handles each case."""
    found: dict[str, Entries] = {release: {} for release in record["releases"]}
    for case, entries in record["cases"].items():
        for release in record["releases"]:
            held = [entry for entry in entries if Version(entry["since"]) <= Version(release)]
            if held:
                found[release][case] = Entry(*(held[-1][name] for name in Entry._fields))
    return found


def written(record: Mapping[str, Any]) -> str:
    """The record as text: one line per entry."""
    cases = [
        f" {json.dumps(case)}: [\n" + ",\n".join(f"  {json.dumps(entry)}" for entry in entries) + "]"
        for case, entries in record["cases"].items()
    ]
    schema, releases = json.dumps(record["schema"]), json.dumps(record["releases"])
    return f'{{"schema": {schema},\n "releases": {releases},\n "cases": {{\n' + ",\n".join(cases) + "}}\n"
