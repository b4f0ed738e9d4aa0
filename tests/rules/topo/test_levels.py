"""TOPO rules on the levels of hierarchical CP."""

from __future__ import annotations

from support.launches import CP, LEVELS, TP
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    (
        "TOPO001",
        "mlm",
        f"{TP} 4 {CP} 8 {LEVELS} 4 2",
        "nvlink_domain=8",
        "all: TOPO001",
    ),  # one replica is enough to find a fault
    ("TOPO001", "mlm", f"{TP} 2 {CP} 8 {LEVELS} 4 2", "nvlink_domain=8", "needs world_size"),  # and never to clear one
    ("TOPO001", "mlm", f"{TP} 2 {CP} 16 {LEVELS} 8 2", "nodes=4 gpus_per_node=8", "all: TOPO001"),
    (
        "TOPO001",
        "mlm",
        f"{TP} 1 {CP} 16 {LEVELS} 4 4",
        "nodes=8 gpus_per_node=4 arch=sm100",
        "needs nvlink_domain",
    ),  # four GPUs of a Blackwell node may be a tray
    ("TOPO002", "mlm", f"{TP} 1 {CP} 16 {LEVELS} 2 8", "nodes=2 gpus_per_node=8", "all: TOPO002"),
    ("TOPO002", "mlm", f"{TP} 1 {CP} 16 {LEVELS} 8 2", "nodes=2 gpus_per_node=8", "all:"),
    (
        "TOPO002",
        "mlm",
        f"{TP} 1 {CP} 16 {LEVELS} 4 4",
        "nodes=2 gpus_per_node=8",
        "all:",
    ),  # not reversed: the widest level is a choice
    ("TOPO002", "mlm", f"{TP} 1 {CP} 16 {LEVELS} 2 8", "nodes=1 gpus_per_node=16", "all:"),  # nothing leaves the node
    (
        "TOPO002",
        "mlm",
        f"{TP} 2 {CP} 16 {LEVELS} 2 8",
        "nodes=4 gpus_per_node=8",
        "all:",
    ),  # 8 inside would leave the node
    ("TOPO002", "mlm", f"{TP} 1 {CP} 64 {LEVELS} 4 16", "nodes=32 gpus_per_node=4 nvlink_domain=32", "all: TOPO002"),
]
