"""DCP rules on the number and the order of ranks."""

from __future__ import annotations

from support.launches import CP, HYBRID, VERL, VERL_ON_DEV
from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("DCP019", "verl", "", "", "not concerned"),
    ("DCP019", "mlm", "", "hybrid_context_parallel=true tp=2", "fine"),
    ("DCP019", "bridge-provider", "", "hybrid_context_parallel=true tp=1 rank_order=null", "fine"),
    ("DCP019", "bridge", "", "hybrid_context_parallel=true mcore=0.21", "not concerned"),
    (
        "DCP019",
        "mlm",
        "",
        "hybrid_context_parallel=true tp=2 rank_order=cp-tp-ep-dp-pp mcore=0.20",
        "error silent never",
    ),
    ("DCP019", "mlm", "", "hybrid_context_parallel=true tp=2 rank_order=cp-tp-ep-dp-pp mcore=0.21", "not concerned"),
    ("DCP021", "verl", f"{VERL}trainer.n_gpus_per_node=6", VERL_ON_DEV, "all: DCP021"),
    ("DCP021", "verl", f"{VERL}trainer.nnodes=1 trainer.n_gpus_per_node=1", VERL_ON_DEV, "all: DCP021"),
    ("DCP021", "verl", f"{VERL}trainer.n_gpus_per_node=4", VERL_ON_DEV, "all:"),
    ("DCP021", "bridge", "", "", "not concerned"),
    ("DCP021", "verl", f"{VERL}trainer.n_gpus_per_node=6", "pp=3", "fine"),
    (
        "DCP021",
        "verl",
        VERL,
        "verl=0.9.1 world_size=1572864 nodes=196608",
        "fine",
    ),  # more than a million are not counted
    ("DCP007", "mlm", f"{HYBRID} {CP} 6", "world_size=6 mcore=0.17.0 te=2.14", "error crash training"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 12", "world_size=12 mcore=0.17.0 te=2.14", "error crash training"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 9", "world_size=9 mcore=0.17.0 te=2.14", "error crash init"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 10", "world_size=10 mcore=0.17.0 te=2.14", "error crash training"),
    ("DCP007", "mlm", "", "", "not concerned"),
    ("DCP007", "bridge-provider", "", "world_size=1 dynamic_context_parallel=true", "needs dp"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("DCP007", "mlm", f"{HYBRID} {CP} 6", "world_size=6 mcore=0.17.0 te=2.14", "group of 4"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 12", "world_size=12 mcore=0.17.0 te=2.14", "group of 8"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 9", "world_size=9 mcore=0.17.0 te=2.14", "even"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 10", "world_size=10 mcore=0.17.0 te=2.14", "under the size 4"),
    ("DCP007", "mlm", "", "hybrid_context_parallel=true world_size=6", "two, such as 4"),
    ("DCP007", "mlm", "", "hybrid_context_parallel=true world_size=6", "such as 4 or 8"),
    ("DCP021", "verl", f"{VERL}trainer.n_gpus_per_node=4", "pp=4", "two, such as 2"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("DCP021", "verl", f"{VERL}trainer.n_gpus_per_node=4", "pp=4", ("trainer.nnodes=2",)),
    ("DCP021", "verl", f"{VERL}trainer.n_gpus_per_node=6", "verl=0.9.1", ()),
]
