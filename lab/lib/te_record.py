"""What all releases of Transformer Engine do: as JSON, one line per case, and as a table for readers.

{"schema": "hcp.te-cpu/1", "releases": [...], "cases": {"p2p, sbhd, cuDNN, causal": [{"since", "verdict", …}, …]}}

`verdict` is what a user of DotProductAttention gets; `not_chosen` why the choice of the backend leaves the kernel out;
`behind` and `text` what the attention does if it is called anyway. Equal neighbours are one entry, `since` the
first release.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from packaging.version import Version

from megatron_hcp.ground.json_layout import laid_out
from megatron_hcp.proofs.te_cpu.case import FEATURES, every_case
from megatron_hcp.proofs.te_cpu.execute import Result

SCHEMA = "hcp.te-cpu/1"
_CASE_WIDTH = 1000
BEGIN, END = "<!-- begin: rendered by lab/te_cpu.py -->", "<!-- end -->"


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
    """The record as text: one line per case."""
    return laid_out(record, _CASE_WIDTH) + "\n"


def table_of(record: Mapping[str, Any]) -> str:
    """The block of Markdown: a row per communication type, layout and kernel, a column per feature."""
    entries = by_release(record)
    rows = list(dict.fromkeys(case[:3] for case in every_case()))
    lines = [
        f"Run: {', '.join(entries)}.",
        "",
        "| cp_comm_type | layout | kernel | " + " | ".join(FEATURES) + " |",
        "|---" * (3 + len(FEATURES)) + "|",
    ]
    for row in rows:
        cells = [_cell(entries, ", ".join((*row, feature))) for feature in FEATURES]
        lines.append(f"| {' | '.join((f'`{row[0]}`', *row[1:], *cells))} |")
    return "\n".join((BEGIN, *lines, END))


def with_table(page: str, record: Mapping[str, Any]) -> str:
    """The page, its table replaced with that of this record."""
    before, _, rest = page.partition(BEGIN)
    return before + table_of(record) + rest.partition(END)[2]


def _cell(entries: Mapping[str, Entries], case: str) -> str:
    """`2.10+`, `wrong 2.18+`, `no`; empty where there is no such case."""
    verdicts = [(release, cases[case].verdict) for release, cases in entries.items() if case in cases]
    runs = [(verdict, [release for release, _ in run]) for verdict, run in groupby(verdicts, key=lambda pair: pair[1])]
    said = []
    for verdict, releases in runs:
        span = _short(releases[0])
        span += "+" if releases[-1] == verdicts[-1][0] else f" to {_short(releases[-1])}"
        if verdict == "right":
            said.append(span)
        elif verdict not in ("refused", "not executed"):
            said.append(f"**{verdict}** {span}")
    return ", ".join(said) or ("no" if runs else "")


def _short(release: str) -> str:
    return ".".join(release.split(".")[:2])
