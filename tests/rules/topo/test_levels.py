"""TOPO rules on the levels of hierarchical CP."""

from __future__ import annotations

from support.launches import CP, LEVELS, TP
from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

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
    ("TOPO001", "mlm", "", "cp=8 cp_comm_type=a2a+p2p hcp_sizes=4,2 nodes=2 gpus_per_node=3", "fine"),
    ("TOPO001", "bridge", "", "tp=2 cp=8 cp_comm_type=a2a+p2p hcp_sizes=4,2 nvlink_domain=16", "needs world_size"),
    ("TOPO001", "mlm", "", "cp=8 cp_comm_type=a2a+p2p", "fine"),
    (
        "TOPO001",
        "bridge",
        "",
        "tp=4 cp=8 cp_comm_type=a2a+p2p hcp_sizes=4,2 nodes=4 gpus_per_node=8",
        "warning slow never",
    ),
    ("TOPO001", "bridge", "", "tp=4 cp=8 cp_comm_type=a2a+p2p hcp_sizes=4,2 rank_order=tp-cp", "needs world_size"),
    ("TOPO001", "mlm", "", "", "not concerned"),
    (
        "TOPO001",
        "bridge",
        "",
        "tp=2 cp=8 cp_comm_type=a2a+p2p hcp_sizes=4,2 nvlink_domain=8 gtp=8",
        "warning slow never",
    ),
    ("TOPO001", "bridge-provider", "", "cp=8 cp_comm_type=a2a+p2p hcp_sizes=4,2 nvlink_domain=8 world_size=2", "fine"),
    ("TOPO001", "mlm", f"{TP} 4 {CP} 8 {LEVELS} 4 2", "hcp_sizes=2,4", "needs nvlink_domain"),
    (
        "TOPO001",
        "mlm",
        "",
        "tp=4 cp=8 cp_comm_type=a2a+p2p hcp_sizes=4,2 nvlink_domain=8 world_size=32 rank_order=tp-gtp-cp-ep-dp-pp",
        "warning slow never",
    ),
    ("TOPO001", "mlm", "", "cp=16 cp_comm_type=a2a+p2p hcp_sizes=1,16 nodes=8 gpus_per_node=4 arch=sm100", "fine"),
    ("TOPO001", "bridge", "", "tp=2 cp=8 cp_comm_type=a2a+p2p hcp_sizes=4,2 nvlink_domain=8 world_size=16", "fine"),
    (
        "TOPO001",
        "bridge",
        "",
        "tp=2 cp=8 cp_comm_type=a2a+p2p hcp_sizes=4,2 nvlink_domain=8 world_size=16 rank_order=tp-ep-cp-dp-pp",
        "fine",
    ),
    (
        "TOPO001",
        "bridge",
        "",
        "tp=2 cp=8 cp_comm_type=a2a+p2p hcp_sizes=4,2 nvlink_domain=8 world_size=16 rank_order=tp-pp-cp-ep-dp",
        "fine",
    ),
    (
        "TOPO001",
        "bridge",
        "",
        "tp=1 cp=8 cp_comm_type=a2a+p2p hcp_sizes=4,2 nvlink_domain=6 world_size=8 rank_order=cp-ep-dp-pp",
        "fine",
    ),
    ("TOPO001", "bridge", "", "tp=1 cp=6 cp_comm_type=a2a+p2p hcp_sizes=3,2 nvlink_domain=8", "needs world_size"),
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
    ("TOPO002", "mlm", "", "cp=16 cp_comm_type=a2a+p2p hcp_sizes=2,8 gpus_per_node=16", "fine"),
    ("TOPO002", "bridge", "", "cp=16 cp_comm_type=a2a+p2p hcp_sizes=2,8 nodes=1 gpus_per_node=16", "fine"),
    ("TOPO002", "bridge", "model.cp_comm_type=${oc.env:X}", "", "needs cp_comm_type"),
    ("TOPO002", "mlm", "", "cp=16 cp_comm_type=a2a+p2p", "fine"),
    ("TOPO002", "mlm", "", "cp=16 cp_comm_type=a2a+p2p hcp_sizes=2,8 gpus_per_node=8 heads=1", "fine"),
    (
        "TOPO002",
        "mlm",
        "",
        "cp=12 cp_comm_type=a2a+p2p hcp_sizes=3,4 nodes=3 gpus_per_node=4 nvlink_domain=4 heads=4 kv_heads=4",
        "fine",
    ),  # HCP007
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("TOPO001", "mlm", "", "tp=4 cp=8 cp_comm_type=a2a+p2p hcp_sizes=4,2 nvlink_domain=8", "inner size 4:"),
    (
        "TOPO001",
        "mlm",
        "",
        "cp=64 cp_comm_type=a2a+p2p hcp_sizes=32,2 nodes=8 gpus_per_node=8",
        "14, 15 in NVLink domains",
    ),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    (
        "TOPO001",
        "mlm",
        "",
        "tp=4 cp=8 cp_comm_type=a2a+p2p hcp_sizes=4,2 nvlink_domain=8",
        (
            "hierarchical_context_parallel_sizes=2 4",
            "cp_comm_type=p2p hierarchical_context_parallel_sizes=null",
        ),
    ),
]
