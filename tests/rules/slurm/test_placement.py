"""SLURM rules on where ranks are placed."""

from __future__ import annotations

from support.launches import CP, LEVELS, TP
from support.rules import Row, test_text, test_verdict

__all__ = ["test_text", "test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("SLURM001", "mlm", f"{TP} 8", "nodes=2 gpus_per_node=8 placement=cyclic", "all: SLURM001"),
    ("SLURM001", "mlm", f"{TP} 8", "nodes=2 gpus_per_node=8 placement=block", "all:"),
    ("SLURM001", "mlm", f"{TP} 8", "nodes=2 gpus_per_node=8 start=torchrun", "all:"),
    ("SLURM001", "mlm", f"{TP} 8", "nodes=2 gpus_per_node=8 start=srun ntasks_per_node=8", "all:"),
    ("SLURM001", "mlm", f"{TP} 8", "nodes=1 gpus_per_node=8 placement=cyclic", "all:"),
    ("SLURM001", "mlm", "--num-layers 2", "nodes=2 gpus_per_node=8 placement=cyclic", "all:"),
    ("SLURM001", "mlm", f"{CP} 16", "nodes=2 gpus_per_node=8 placement=cyclic", "all:"),  # both nodes either way
    ("SLURM001", "mlm", f"{TP} 1 {CP} 16 {LEVELS} 8 2", "nodes=2 gpus_per_node=8 placement=cyclic", "all: SLURM001"),
    ("SLURM001", "verl", "", "tp=8 nodes=2 gpus_per_node=8 placement=cyclic", "not concerned"),  # Ray places them
    ("SLURM001", "mlm", "--num-layers 2", "nodes=2 gpus_per_node=8 placement=cyclic", "not concerned"),
    ("SLURM001", "mlm", f"{TP} 8", "nodes=1 gpus_per_node=8 placement=cyclic", "not concerned"),
    ("SLURM001", "mlm", f"{TP} 8", "placement=cyclic", "not concerned"),  # for all we know on one node
    ("SLURM001", "mlm", f"{TP} 2", "nodes=2 gpus_per_node=8 placement=cyclic", "warning slow never"),
    ("SLURM001", "mlm", f"{TP} 4", "nodes=2 gpus_per_node=8 world_size=12 placement=cyclic", "fine"),  # half a node
    ("SLURM001", "mlm", f"{TP} 16", "nodes=3 gpus_per_node=8 placement=cyclic", "fine"),  # TOPO003
    ("SLURM003", "mlm", f"{TP} 1 {CP} 16 {LEVELS} 4 4", "nodes=32 gpus_per_node=4 nvlink_domain=64", "all: SLURM003"),
    ("SLURM003", "mlm", f"{TP} 1 {CP} 16 {LEVELS} 8 2", "nodes=32 gpus_per_node=4 nvlink_domain=64", "all:"),
    ("SLURM003", "mlm", f"{TP} 1 {CP} 16 {LEVELS} 4 4", "nodes=4 gpus_per_node=4 nvlink_domain=4", "all:"),
    ("SLURM003", "mlm", f"{CP} 16 {LEVELS} 4 2", "nodes=32 gpus_per_node=4 nvlink_domain=64", "fine"),  # HCP002
    ("SLURM003", "mlm", f"{CP} 16 {LEVELS} 4 4", "nodes=32 gpus_per_node=4 arch=sm100", "needs nvlink_domain"),
    ("SLURM003", "mlm", f"{CP} 16 --cp-comm-type p2p", "nodes=32 gpus_per_node=4 nvlink_domain=64", "not concerned"),
    (
        "SLURM003",
        "mlm",
        f"{TP} 2 {CP} 16 {LEVELS} 4 4",
        "nodes=32 gpus_per_node=4 nvlink_domain=64",
        "fine",
    ),  # two trays
    ("SLURM003", "mlm", f"{CP} 32 {LEVELS} 4 8", "nodes=32 gpus_per_node=4 nvlink_domain=64", "fine"),  # TOPO002
    ("SLURM003", "mlm", f"{CP} 64 {LEVELS} 4 16", "nodes=32 gpus_per_node=4 nvlink_domain=8", "warning slow never"),
    ("SLURM003", "mlm", f"{CP} 2 {LEVELS} 2 1", "nodes=8 gpus_per_node=2 nvlink_domain=8", "fine"),
    (
        "SLURM003",
        "mlm",
        f"{CP} 16 {LEVELS} 4 4 --num-attention-heads 4",
        "nodes=32 gpus_per_node=4 nvlink_domain=64",
        "fine",
    ),
    (
        "SLURM003",
        "mlm",
        f"{CP} 16 {LEVELS} 4 4",
        "nodes=32 gpus_per_node=4 nvlink_domain=32 rank_order=tp-dp-cp-ep-pp",
        "fine",
    ),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    (
        "SLURM001",
        "mlm",
        f"{TP} 2 {CP} 8",
        "nodes=2 gpus_per_node=8 placement=cyclic",
        "the tensor-parallel groups cross",
    ),
    ("SLURM001", "mlm", f"{CP} 16 {LEVELS} 8 2", "nodes=2 gpus_per_node=8 placement=cyclic", "5, 6, 7 are on 2 nodes"),
    ("SLURM001", "mlm", f"{TP} 32", "nodes=2 gpus_per_node=64 placement=cyclic", "14, 15 are on 2 nodes"),
    (
        "SLURM001",
        "mlm",
        f"{CP} 128",
        "nodes=16 gpus_per_node=8 placement=cyclic",
        "by block on 8",
    ),  # its first 64 ranks
    (
        "SLURM003",
        "mlm",
        f"{CP} 16 {LEVELS} 4 4",
        "nodes=32 gpus_per_node=4 nvlink_domain=64",
        "for the NVLink domain: 8 |",
    ),
    (
        "SLURM003",
        "mlm",
        f"{CP} 16 {LEVELS} 4 4",
        "nodes=32 gpus_per_node=4 nvlink_domain=64",
        "all-to-all over 8 ranks",
    ),
]
