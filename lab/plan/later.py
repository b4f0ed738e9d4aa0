"""Scores rows that were measured later than the constants, and keeps the score: `python lab plan/later ROWS.jsonl`.

A row is scored once, by the constants of the tree, and its line is added to lab/results/later_rows.txt with --write:
the day, the constants' digest, predicted over measured seconds, the margin, and the row. A row that has a line keeps
it. `plan/fit` fits no row that is neither among the first ones (lab/results/first_rows.txt) nor has been scored here.
"""

from __future__ import annotations

import datetime
import hashlib
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from left_out import predicted
from program import ROOT, parser_of
from rows import Measured, bridge_rows

from megatron_hcp.plan.constants_fitted import FITTED

SCORES, FIRST = ROOT / "lab/results/later_rows.txt", ROOT / "lab/results/first_rows.txt"
_HEAD = (
    "# Steps measured later than the constants, each scored before it may be fitted: `python lab plan/later --write`.\n"
)
_COLUMNS = "# day | constants | predicted over measured - 1 | margin | row\n"


class Score(NamedTuple):
    """A row's line in the record."""

    day: str
    constants: str
    error: float
    margin: float
    row: str

    def __str__(self) -> str:
        return f"{self.day} | {self.constants} | {self.error:+.3f} | {self.margin:.3f} | {self.row}"


def key_of(row: Measured) -> str:
    """What tells a row apart: its name, and what was measured."""
    return f"{row.name} {row.seconds:.5g} s"


def digest(values: dict[str, float]) -> str:
    """Names a set of constants."""
    return hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest()[:12]


def scored(path: Path = SCORES) -> dict[str, Score]:
    """The record, by row."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    parts = [line.split(" | ") for line in lines if not line.startswith("#")]
    return {
        row: Score(day, constants, float(error), float(margin), row) for day, constants, error, margin, row in parts
    }


def first_rows(path: Path = FIRST) -> frozenset[str]:
    """The rows that the constants were first fitted to."""
    return frozenset(line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))


def unscored(rows: Iterable[Measured], record: dict[str, Score], first: frozenset[str]) -> list[Measured]:
    """Rows that nobody scored before."""
    return [row for row in rows if key_of(row) not in record and key_of(row) not in first]


def with_scores(rows: Sequence[Measured], record: dict[str, Score], day: str) -> dict[str, Score]:
    """The record with the rows that it lacks, scored by the constants of the tree; those that it has stay."""
    found = dict(record)
    for row in unscored(rows, record, first_rows()):
        of_row = predicted(row, FITTED)
        margin = FITTED["margin.scale"] * of_row.margin
        found[key_of(row)] = Score(day, digest(FITTED), of_row.error, margin, key_of(row))
    return found


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("rows", type=Path, metavar="ROWS.jsonl")
    parser.add_argument("--write", action="store_true", help="add the scores to the record")
    words = parser.parse_args()
    rows = [row for row in bridge_rows(words.rows, stated=True) if row.group == "counted"]
    before = scored()
    after = with_scores(rows, before, datetime.date.today().isoformat())
    new = [score for name, score in after.items() if name not in before]
    for score in new:
        print(score)
    errors = sorted(abs(score.error) for score in after.values())
    if errors:
        within = sum(abs(score.error) <= score.margin for score in after.values())
        print(
            f"{len(new)} new, {len(after)} in all: median {statistics.median(errors):.1%}, "
            f"p90 {errors[int(0.9 * (len(errors) - 1))]:.1%}, {within} of {len(after)} within the margin"
        )
    if words.write:
        SCORES.write_text(_HEAD + _COLUMNS + "".join(f"{score}\n" for score in after.values()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
