"""DCP rules on attention, as tables."""

from __future__ import annotations

from support.launches import HYBRID, ON_MAIN, TP
from support.rules import FixRow, Row, test_fixes, test_verdict

__all__ = ["test_fixes", "test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("DCP009", "mlm", f"{HYBRID}--cp-comm-type a2a --num-attention-heads 16 {TP} 1", ON_MAIN, "all:"),
    ("DCP009", "bridge-provider", "", "hybrid_context_parallel=true cp=1 cp_comm_type=a2a", "warning silent never"),
    ("DCP009", "mlm", "", "hybrid_context_parallel=true", "fine"),
    (
        "DCP009",
        "mlm",
        "",
        "hybrid_context_parallel=true cp=8 cp_comm_type=a2a heads=16 world_size=8 kv_heads=3",
        "error crash training",
    ),
    ("DCP009", "mlm", "", "", "not concerned"),
    ("DCP009", "mlm", "", "hybrid_context_parallel=true cp=8 world_size=8 cp_comm_type=a2a", "needs heads"),
    ("DCP010", "mlm", f"{HYBRID}--cp-comm-type all_gather", "world_size=8 mcore=0.17.0 te=2.20 arch=sm90", "all:"),
    ("DCP010", "bridge-provider", "", "hybrid_context_parallel=true mcore=0.21", "not concerned"),
    ("DCP010", "bridge-provider", "", "hybrid_context_parallel=true cp=2", "fine"),
    ("DCP010", "mlm", "", "", "not concerned"),
    ("DCP010", "bridge", "", "hybrid_context_parallel=true", "not concerned"),
    ("DCP010", "mlm", "", "hybrid_context_parallel=true world_size=8", "error crash training"),
    ("DCP010", "mlm", "", "hybrid_context_parallel=true world_size=8 mcore=0.20", "error crash training"),
    ("DCP010", "mlm", "", "hybrid_context_parallel=true world_size=8 mcore=0.21", "not concerned"),
    ("DCP011", "mlm", f"{HYBRID}--multi-latent-attention", ON_MAIN, "all: DCP011"),
    ("DCP011", "bridge-provider", "", "hybrid_context_parallel=true mcore=0.21", "not concerned"),
    ("DCP011", "mlm", "", "hybrid_context_parallel=true mla=true mcore=0.20", "error crash first-forward"),
    ("DCP012", "mlm", f"{HYBRID}--position-embedding-type rope", ON_MAIN, "all: DCP012"),
    ("DCP012", "mlm", f"{HYBRID}--position-embedding-type none", ON_MAIN, "all:"),
    ("DCP012", "bridge", "", "hybrid_context_parallel=true", "not concerned"),
    ("DCP012", "mlm", "", "hybrid_context_parallel=true mcore=0.21", "not concerned"),
    ("DCP012", "mlm", "", "hybrid_context_parallel=true position_embedding_type=yarn", "error silent never"),
    ("DCP012", "mlm", "", "hybrid_context_parallel=true position_embedding_type=mrope", "error silent never"),
    ("DCP012", "mlm", "", "hybrid_context_parallel=true position_embedding_type=rope mcore=0.20", "error silent never"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("DCP010", "mlm", "", "hybrid_context_parallel=true world_size=8", ("context_parallel_size=8",)),
    ("DCP010", "mlm", "", "hybrid_context_parallel=true world_size=2", ("context_parallel_size=2",)),
]
