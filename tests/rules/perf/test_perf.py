"""PERF rules, as tables."""

from __future__ import annotations

from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("PERF001", "mlm", "--context-parallel-size 4 --seq-length 4096", "", "fine"),
]
