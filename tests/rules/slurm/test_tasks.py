"""SLURM rules on the number of tasks."""

from __future__ import annotations

from support.launches import MLM
from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("SLURM002", "mlm", "--num-layers 2", "start=srun nodes=2 gpus_per_node=8 ntasks_per_node=8", "fine"),
    ("SLURM002", "mlm", "--num-layers 2", "start=srun nodes=2 gpus_per_node=8 ntasks_per_node=1", "error hang init"),
    ("SLURM002", "mlm", "--num-layers 2", "start=srun nodes=2 gpus_per_node=8 ntasks_per_node=16", "error crash init"),
    (
        "SLURM002",
        "mlm",
        "--num-layers 2",
        "start=srun nodes=2 gpus_per_node=8 ntasks_per_node=4 world_size=8",
        "warning slow init",
    ),
    (
        "SLURM002",
        "mlm",
        "--num-layers 2",
        "start=srun nodes=2 gpus_per_node=8 ntasks_per_node=8 world_size=32",
        "error hang init",
    ),
    ("SLURM002", "nemo-rl", "", "start=srun nodes=2 gpus_per_node=8 ntasks_per_node=1", "not concerned"),
    ("SLURM002", "slime", "", "start=srun nodes=2 gpus_per_node=8 ntasks_per_node=1", "not concerned"),
    ("SLURM002", "mlm", "", "start=torchrun nodes=2 gpus_per_node=8 ntasks_per_node=1", "not concerned"),
    ("SLURM002", "mlm", "", "start=srun nodes=2 gpus_per_node=8 ntasks_per_node=8 world_size=8", "error crash init"),
    (
        "SLURM004",
        "mlm",
        f"#SBATCH --ntasks-per-node=8\nsrun torchrun --nproc-per-node=8 {MLM}\n",
        "",
        "error crash init",
    ),
    (
        "SLURM004",
        "mlm",
        f"#SBATCH --ntasks-per-node=8\nsrun --ntasks-per-node=1 torchrun --nproc-per-node=8 {MLM}\n",
        "",
        "fine",
    ),
    ("SLURM004", "mlm", f"#SBATCH --ntasks-per-node=1\nsrun ft_launcher --nproc-per-node=8 {MLM}\n", "", "fine"),
    (
        "SLURM004",
        "mlm",
        f"#SBATCH --ntasks-per-node=4\nsrun ft_launcher --nproc-per-node=8 {MLM}\n",
        "",
        "error crash init",
    ),
    ("SLURM004", "mlm", f"srun --ntasks=16 torchrun --nnodes=2 --nproc-per-node=8 {MLM}\n", "", "error crash init"),
    ("SLURM004", "mlm", f"srun --ntasks=2 torchrun --nnodes=2 --nproc-per-node=8 {MLM}\n", "", "fine"),
    ("SLURM004", "mlm", f"#SBATCH --ntasks-per-node=8\ntorchrun --nproc-per-node=8 {MLM}\n", "", "not concerned"),
    ("SLURM004", "mlm", f"#SBATCH --ntasks-per-node=8\nsrun python {MLM}\n", "", "not concerned"),
    (
        "SLURM004",
        "mlm",
        f"#SBATCH --ntasks-per-node=8\nsrun bash -c 'torchrun --nproc-per-node=8 {MLM}'\n",
        "",
        "error crash init",
    ),
    ("SLURM004", "mlm", f"srun --ntasks-per-node=$N torchrun --nproc-per-node=8 {MLM}\n", "", "needs ntasks_per_node"),
    (
        "SLURM004",
        "mlm",
        f"#SBATCH --ntasks-per-node=1\nsrun --ntasks=16 torchrun --nnodes=2 {MLM}\n",
        "",
        "fine",
    ),  # at most one
    (
        "SLURM004",
        "mlm",
        f"srun --ntasks=16 torchrun --nproc-per-node=8 {MLM}\n",
        "",
        "error crash init",
    ),  # one node: the default
    # Slurm's own default is one task per node.
    ("SLURM004", "mlm", f"#SBATCH --nodes=2\nsrun torchrun --nnodes=2 --nproc-per-node=8 {MLM}\n", "", "fine"),
    (
        "SLURM004",
        "mlm",
        f"#SBATCH --nodes=2\nsrun $OPTIONS torchrun --nproc-per-node=8 {MLM}\n",
        "",
        "needs ntasks_per_node",
    ),
    (
        "SLURM004",
        "mlm",
        f"#SBATCH --nodes=2 --ntasks=16\nsrun torchrun --nnodes=2 --nproc-per-node=8 {MLM}\n",
        "",
        "error crash init",
    ),
    (
        "SLURM004",
        "mlm",
        f"#SBATCH --nodes=2 --ntasks-per-gpu=1\nsrun torchrun --nnodes=2 --nproc-per-node=8 {MLM}\n",
        "",
        "needs ntasks_per_node",
    ),
    ("SLURM004", "mlm", f"srun --ntasks=many torchrun --nnodes=2 --nproc-per-node=8 {MLM}\n", "", "fine"),
    ("SLURM004", "mlm", f"srun --ntasks=3 torchrun --nnodes=2 --nproc-per-node=8 {MLM}\n", "", "error crash init"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    (
        "SLURM004",
        "mlm",
        f"#SBATCH --ntasks-per-node=8\nsrun torchrun --nnodes=2 --nproc-per-node=8 {MLM}\n",
        "",
        "64 processes",
    ),
    ("SLURM004", "mlm", f"#SBATCH --ntasks-per-node=8\nsrun torchrun {MLM}\n", "", "8 processes instead"),
    (
        "SLURM004",
        "mlm",
        f"srun --ntasks=1234567890 torchrun --nnodes=1 {MLM}\n",
        "",
        "123456789 launchers",
    ),  # enough digits
    (
        "SLURM004",
        "mlm",
        f"#SBATCH --ntasks-per-node=8\nsrun torchrun --nproc-per-node=$GPUS {MLM}\n",
        "",
        "8 processes instead",
    ),
]


FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("SLURM002", "mlm", "", "start=srun nodes=2 gpus_per_node=8 ntasks_per_node=1", ("ntasks_per_node=8",)),
    ("SLURM002", "mlm", "", "start=srun nodes=2 gpus_per_node=8 ntasks_per_node=8 world_size=8", ()),
    (
        "SLURM002",
        "mlm",
        "",
        "start=srun nodes=2 gpus_per_node=4 ntasks_per_node=8",
        ("ntasks_per_node=4", "gpus_per_node=8"),
    ),
]
