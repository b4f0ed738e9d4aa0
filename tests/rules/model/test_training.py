"""MODEL rules on training scripts and prediction layers, as tables."""

from __future__ import annotations

from support.launches import CP
from support.rules import FixRow, Row, test_fixes, test_verdict

__all__ = ["test_fixes", "test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("MODEL004", "mlm", f"{CP} 2 --pipeline-model-parallel-size 2", "script=pretrain_gpt.py", "not concerned"),
    ("MODEL006", "mlm", f"{CP} 2 --num-layers 2 --cp-comm-type p2p all_gather", "mcore=0.17", "not concerned"),
    ("MODEL006", "mlm", f"{CP} 2 --num-layers 2 --cp-comm-type p2p --mtp-num-layers 1", "mcore=0.17", "not concerned"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    (
        "MODEL004",
        "mlm",
        f"{CP} 2 --pipeline-model-parallel-size 2",
        "script=pretrain_vlm.py",
        ("context_parallel_size=1", "pipeline_model_parallel_size=1"),
    ),
]
