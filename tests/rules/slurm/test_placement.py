"""SLURM rules on where ranks are placed."""

from __future__ import annotations

from support.launches import CP, LEVELS, TP
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

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
    ("SLURM003", "mlm", f"{TP} 1 {CP} 16 {LEVELS} 4 4", "nodes=32 gpus_per_node=4 nvlink_domain=64", "all: SLURM003"),
    ("SLURM003", "mlm", f"{TP} 1 {CP} 16 {LEVELS} 8 2", "nodes=32 gpus_per_node=4 nvlink_domain=64", "all:"),
    ("SLURM003", "mlm", f"{TP} 1 {CP} 16 {LEVELS} 4 4", "nodes=4 gpus_per_node=4 nvlink_domain=4", "all:"),
]
