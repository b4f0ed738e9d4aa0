"""CP rules on the attention implementation, by backend and version."""

from __future__ import annotations

from support.launches import CP
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("CP006", "mlm", f"{CP} 2 --spec local", "", "error"),
    ("CP006", "mlm", f"{CP} 2 --attention-backend local --spec local", "", "error"),
    ("CP006", "mlm", f"{CP} 2 --transformer-impl local --spec some.module some_spec", "", "fine"),
    ("CP012", "mlm", f"{CP} 2", "attention_mask=arbitrary", "error"),
    ("CP012", "mlm", f"{CP} 2", "attention_mask=padding", "error"),
    ("CP012", "mlm", f"{CP} 2", "attention_mask=padding thd=true", "fine"),
    ("CP013", "mlm", f"{CP} 2 --attention-backend flash --flash-attention-version 4", "", "needs te"),
    ("CP013", "mlm", f"{CP} 2 --attention-backend flash --flash-attention-version 4", "te=2.17", "fine"),
    ("CP013", "mlm", f"{CP} 2 --attention-backend flash --flash-attention-version 4", "te=2.18", "error"),
    (
        "CP013",
        "mlm",
        f"{CP} 2 --attention-backend flash --flash-attention-version 4 --cp-comm-type a2a+p2p "
        "--hierarchical-context-parallel-sizes 1 2",
        "te=2.20",
        "error",
    ),
]
