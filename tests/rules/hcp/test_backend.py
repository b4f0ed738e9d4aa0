"""HCP rules on versions of Transformer Engine, packed data and FP8."""

from __future__ import annotations

from support.launches import BRIDGE_HCP, HCP
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("HCP013", "mlm", HCP, "te=1.9.0", "error silent"),
    ("HCP013", "mlm", HCP, "te=1.11.0", "error crash"),
    ("HCP013", "mlm", HCP, "te=1.12.0", "fine"),
    ("HCP014", "bridge", BRIDGE_HCP, "te=2.18.0 thd=true", "error"),
    ("HCP014", "bridge", BRIDGE_HCP, "te=2.19.0 thd=true", "fine"),
    ("HCP014", "bridge", BRIDGE_HCP, "te=2.18.0 thd=false", "fine"),
    ("HCP014", "bridge", BRIDGE_HCP, "thd=false", "fine"),
    ("HCP014", "bridge", BRIDGE_HCP, "te=2.19.0", "fine"),
    ("HCP014", "bridge", BRIDGE_HCP, "thd=true", "needs te"),
]
