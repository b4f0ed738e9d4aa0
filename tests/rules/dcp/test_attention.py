"""DCP rules on attention, as tables."""

from __future__ import annotations

from support.launches import CP, HYBRID, KV, ON_MAIN, OVERRIDE, PROVIDER, TP, VERL, VERL_ON_DEV
from support.rules import FixRow, Row, test_fixes, test_verdict

__all__ = ["test_fixes", "test_verdict"]

A2A = f"{HYBRID}--cp-comm-type a2a --num-attention-heads"
NEWER = "world_size=8 mcore=0.21.0 te=2.14 "
"""A megatron-core whose sources nobody has read."""

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("DCP009", "mlm", f"{HYBRID}--cp-comm-type a2a --num-attention-heads 16 {TP} 1", ON_MAIN, "all:"),
    ("DCP009", "mlm", f"{HYBRID}--cp-comm-type a2a+p2p", ON_MAIN, "error crash training"),
    ("DCP009", "mlm", f"{HYBRID}--cp-comm-type all_gather", ON_MAIN, "fine"),
    ("DCP009", "mlm", f"{HYBRID}--cp-comm-type all_gather --num-attention-heads 4", ON_MAIN, "fine"),
    ("DCP009", "mlm", f"{A2A} 4", ON_MAIN, "error crash training"),
    ("DCP009", "mlm", f"{A2A} 16 {KV} 8", ON_MAIN, "fine"),
    ("DCP009", "mlm", f"{A2A} 16 {KV} 4", ON_MAIN, "error crash training"),
    ("DCP009", "mlm", f"{A2A} 12 {KV} 8", ON_MAIN, "error crash training"),  # Transformer Engine asks for both counts
    ("DCP009", "mlm", f"{A2A} 8 {TP} 2", "world_size=16 mcore=0.17.0", "error crash training"),
    ("DCP009", "mlm", f"{A2A} 4 {CP} 2", ON_MAIN, "error crash training"),
    ("DCP009", "mlm", f"{A2A} 4 {CP} 1", ON_MAIN, "warning silent never"),  # p2p runs
    ("DCP009", "mlm", f"{HYBRID}{CP} 1", ON_MAIN, "fine"),
    ("DCP009", "mlm", "--cp-comm-type a2a+p2p", ON_MAIN, "not concerned"),
    ("DCP010", "bridge-provider", f"{PROVIDER}model.context_parallel_size=1", ON_MAIN + "dp=8", "error crash training"),
    ("DCP010", "mlm", f"{HYBRID}{CP} 1", ON_MAIN, "error crash training"),
    ("DCP010", "mlm", f"{HYBRID}{CP} 1 --transformer-impl local", ON_MAIN, "error crash first-forward"),
    ("DCP010", "mlm", f"{HYBRID}{CP} 2", ON_MAIN, "fine"),
    ("DCP010", "mlm", f"{HYBRID}{CP} 1", NEWER, "not concerned"),
    ("DCP010", "mlm", f"{CP} 1", ON_MAIN, "not concerned"),
    ("DCP010", "bridge", f"{PROVIDER}model.context_parallel_size=1", ON_MAIN, "not concerned"),  # DCP016 says it
    ("DCP010", "mlm", f"{HYBRID}--cp-comm-type all_gather", "world_size=8 mcore=0.17.0 te=2.20 arch=sm90", "all:"),
    ("DCP011", "mlm", f"{HYBRID}--multi-latent-attention", ON_MAIN, "all: DCP011"),
    ("DCP011", "mlm", f"{HYBRID}--multi-latent-attention", "", "error crash first-forward"),
    ("DCP011", "mlm", f"{HYBRID}--multi-latent-attention", "mcore=0.20.0", "error crash first-forward"),
    ("DCP011", "mlm", f"{HYBRID}--multi-latent-attention", NEWER, "not concerned"),
    ("DCP011", "verl", f"{VERL}+{OVERRIDE}hybrid_context_parallel=True", VERL_ON_DEV + "mla=true", "not concerned"),
    ("DCP012", "mlm", f"{HYBRID}--position-embedding-type rope", ON_MAIN, "all: DCP012"),
    ("DCP012", "mlm", f"{HYBRID}--position-embedding-type mrope", ON_MAIN, "error silent never"),
    ("DCP012", "mlm", f"{HYBRID}--position-embedding-type yarn", ON_MAIN, "error silent never"),
    ("DCP012", "mlm", f"{HYBRID}--use-rotary-position-embeddings", ON_MAIN, "error silent never"),
    ("DCP012", "mlm", f"{HYBRID}--position-embedding-type none", ON_MAIN, "all:"),
    ("DCP012", "mlm", f"{HYBRID}--position-embedding-type rope", NEWER, "not concerned"),
    ("DCP012", "mlm", "--position-embedding-type rope", ON_MAIN, "not concerned"),
    ("DCP012", "bridge-provider", f"{PROVIDER}model.position_embedding_type=rope", ON_MAIN, "not concerned"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each offered fix writes
    ("DCP009", "mlm", f"{A2A} 4", ON_MAIN, ("cp_comm_type=p2p",)),
    ("DCP010", "mlm", f"{HYBRID}{CP} 1", ON_MAIN, ("context_parallel_size=8",)),
    (
        "DCP010",
        "mlm",
        f"{HYBRID}{CP} 1 --transformer-impl local",
        ON_MAIN,
        ("transformer_impl=transformer_engine context_parallel_size=8",),
    ),
]
