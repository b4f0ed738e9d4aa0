"""DCP rules on the number and the order of ranks."""

from __future__ import annotations

from support.launches import CP, HYBRID, VERL, VERL_ON_DEV
from support.rules import Row, test_text, test_verdict

__all__ = ["test_text", "test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("DCP021", "verl", f"{VERL}trainer.n_gpus_per_node=6", VERL_ON_DEV, "all: DCP021"),
    ("DCP021", "verl", f"{VERL}trainer.nnodes=1 trainer.n_gpus_per_node=1", VERL_ON_DEV, "all: DCP021"),
    ("DCP021", "verl", f"{VERL}trainer.n_gpus_per_node=4", VERL_ON_DEV, "all:"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 6", "world_size=6 mcore=0.17.0 te=2.14", "error crash training"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 12", "world_size=12 mcore=0.17.0 te=2.14", "error crash training"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 9", "world_size=9 mcore=0.17.0 te=2.14", "error crash init"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 10", "world_size=10 mcore=0.17.0 te=2.14", "error crash training"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("DCP007", "mlm", f"{HYBRID} {CP} 6", "world_size=6 mcore=0.17.0 te=2.14", "group of 4"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 12", "world_size=12 mcore=0.17.0 te=2.14", "group of 8"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 9", "world_size=9 mcore=0.17.0 te=2.14", "even"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 10", "world_size=10 mcore=0.17.0 te=2.14", "under the size 4"),
]
