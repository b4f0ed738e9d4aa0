"""The record as a readable table: since which release Transformer Engine takes which call."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from hcp.proofs.te_cpu.case import FEATURES, every_case
from hcp.proofs.te_cpu.record import Entries, by_release

BEGIN, END = "<!-- begin: rendered by bench/te_cpu.py -->", "<!-- end -->"


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
