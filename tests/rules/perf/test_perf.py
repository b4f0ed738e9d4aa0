"""PERF rules, as tables."""

from __future__ import annotations

from support.launches import CP
from support.rules import FixRow, Row, test_fixes, test_verdict

__all__ = ["test_fixes", "test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("PERF001", "mlm", "--context-parallel-size 4 --seq-length 4096", "", "fine"),
    ("PERF001", "verl", "", "cp=4 seq_length=1024", "not concerned"),
    ("PERF001", "bridge", "", "cp=4 seq_length=1024", "info slow training"),
    ("PERF001", "bridge", "", "seq_length=null", "needs cp"),
    ("PERF001", "bridge", "", "cp=4 seq_length=null", "fine"),
    ("PERF001", "mlm", "--seq-length 512", "", "not concerned"),
    ("PERF001", "mlm", f"{CP} 2 --seq-length 1024", "", "info slow training"),
    ("PERF001", "bridge", "model.context_parallel_size=4", "", "not concerned"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("PERF001", "mlm", f"{CP} 4 --seq-length 2048", "", ("context_parallel_size=2",)),
]
