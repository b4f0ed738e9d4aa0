"""MODEL rules on training scripts, as tables."""

from __future__ import annotations

from support.launches import CP
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("MODEL004", "mlm", f"{CP} 2 --pipeline-model-parallel-size 2", "script=pretrain_gpt.py", "not concerned"),
]
