"""DCP rules on attention, as tables."""

from __future__ import annotations

from support.launches import HYBRID, ON_MAIN, TP
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("DCP009", "mlm", f"{HYBRID}--cp-comm-type a2a --num-attention-heads 16 {TP} 1", ON_MAIN, "all:"),
    ("DCP010", "mlm", f"{HYBRID}--cp-comm-type all_gather", "world_size=8 mcore=0.17.0 te=2.20 arch=sm90", "all:"),
    ("DCP011", "mlm", f"{HYBRID}--multi-latent-attention", ON_MAIN, "all: DCP011"),
    ("DCP012", "mlm", f"{HYBRID}--position-embedding-type rope", ON_MAIN, "all: DCP012"),
    ("DCP012", "mlm", f"{HYBRID}--position-embedding-type none", ON_MAIN, "all:"),
]
