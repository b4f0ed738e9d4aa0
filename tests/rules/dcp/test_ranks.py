"""DCP rules on the number and the order of ranks."""

from __future__ import annotations

from support.launches import CP, DYNAMIC, HYBRID, ON_DEV, ON_MAIN, OVERRIDE, PROVIDER, TP, VERL, VERL_ON_DEV
from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

TP_2 = f"{PROVIDER}model.tensor_model_parallel_size=2"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("DCP021", "verl", f"{VERL}trainer.n_gpus_per_node=6", VERL_ON_DEV, "all: DCP021"),
    ("DCP021", "verl", f"{VERL}trainer.nnodes=1 trainer.n_gpus_per_node=1", VERL_ON_DEV, "all: DCP021"),
    ("DCP021", "verl", f"{VERL}trainer.nnodes=1 trainer.n_gpus_per_node=1", VERL_ON_DEV, "error crash init"),
    ("DCP021", "verl", f"{VERL}trainer.n_gpus_per_node=2", VERL_ON_DEV, "fine"),
    ("DCP021", "verl", f"{VERL}trainer.n_gpus_per_node=4", VERL_ON_DEV, "all:"),
    ("DCP021", "verl", "trainer.n_gpus_per_node=6", VERL_ON_DEV, "not concerned"),
    # Newer than what was read.
    ("DCP021", "verl", f"{VERL}trainer.n_gpus_per_node=6", "verl=0.10.0 mcore=0.21.0", "not concerned"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 6", "world_size=6 mcore=0.21.0 te=2.14", "not concerned"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 6", "world_size=6 mcore=0.17.0 te=2.14", "error crash training"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 12", "world_size=12 mcore=0.17.0 te=2.14", "error crash training"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 9", "world_size=9 mcore=0.17.0 te=2.14", "error crash init"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 10", "world_size=10 mcore=0.17.0 te=2.14", "error crash training"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 2", "world_size=2 mcore=0.17.0 te=2.14", "fine"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 1", "world_size=1 mcore=0.17.0 te=2.14", "error crash init"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 2", f"world_size={2**20 - 2} mcore=0.17.0", "error crash training"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 2", f"world_size={2**20 + 2} mcore=0.17.0", "fine"),  # no such cluster: no claim
    ("DCP007", "mlm", f"{DYNAMIC} {CP} 6", "world_size=6 mcore=0.19.0 mcore_branch=dev", "error crash training"),
    ("DCP007", "mlm", HYBRID, "mcore=0.17.0", "needs world_size"),
    ("DCP007", "mlm", f"{CP} 6", "world_size=6", "not concerned"),
    ("DCP007", "verl", f"{VERL}trainer.n_gpus_per_node=6", VERL_ON_DEV, "not concerned"),  # DCP021 says it
    ("DCP019", "bridge-provider", TP_2, "rank_order=cp-tp-dp-ep-pp mcore=0.16.1", "error silent never"),
    ("DCP019", "bridge-provider", TP_2, "rank_order=cp-tp-dp-ep-pp", "error silent never"),
    ("DCP019", "bridge-provider", TP_2, "rank_order=cp-tp-dp-ep-pp mcore=0.20.0", "error silent never"),
    ("DCP019", "bridge-provider", TP_2, "rank_order=cp-tp-dp-ep-pp mcore=0.21.0", "not concerned"),
    ("DCP019", "bridge-provider", TP_2, "rank_order=tp-cp-ep-dp-pp mcore=0.16.1", "fine"),
    ("DCP019", "bridge-provider", PROVIDER, "tp=1 rank_order=cp-tp-dp-ep-pp mcore=0.16.1", "fine"),
    ("DCP019", "mlm", f"{HYBRID}{TP} 2", ON_MAIN, "fine"),
    ("DCP019", "mlm", f"{TP} 2", "rank_order=cp-tp-dp-ep-pp mcore=0.17.0", "not concerned"),
    ("DCP019", "mlm", f"{DYNAMIC}{TP} 2", ON_DEV + "rank_order=cp-tp-dp-ep-pp", "not concerned"),
    ("DCP019", "verl", f"{VERL}+{OVERRIDE}hybrid_context_parallel=True", VERL_ON_DEV, "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("DCP007", "mlm", f"{HYBRID} {CP} 6", "world_size=6 mcore=0.17.0 te=2.14", "message: group of 4"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 6", "world_size=6 mcore=0.17.0 te=2.14", "such as 4 or 8 |"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 12", "world_size=12 mcore=0.17.0 te=2.14", "message: group of 8"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 12", "world_size=12 mcore=0.17.0 te=2.14", "none is built | DP x CP = 12"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 9", "world_size=9 mcore=0.17.0 te=2.14", "message: even"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 10", "world_size=10 mcore=0.17.0 te=2.14", "message: registered as size 4"),
    ("DCP007", "mlm", f"{HYBRID} {CP} 1", "world_size=1 mcore=0.17.0 te=2.14", "such as 2 or"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each offered fix writes
    ("DCP021", "verl", f"{VERL}trainer.nnodes=3", VERL_ON_DEV, ("trainer.nnodes=2", "trainer.nnodes=4")),
    ("DCP021", "verl", f"{VERL}trainer.n_gpus_per_node=6", VERL_ON_DEV, ()),  # no number of such nodes is right
]
