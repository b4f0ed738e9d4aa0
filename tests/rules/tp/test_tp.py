"""TP rules, as tables."""

from __future__ import annotations

from support.launches import TP
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("TP001", "mlm", "--num-attention-heads 7", "", "not concerned"),
    ("TP001", "mlm", f"{TP} 2 --num-attention-heads 7", "", "error crash config"),
    ("TP001", "bridge", "", "", "needs tp"),
]
