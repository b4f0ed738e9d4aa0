"""SLURM rules on the number of tasks."""

from __future__ import annotations

from support.launches import MLM
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

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
]
