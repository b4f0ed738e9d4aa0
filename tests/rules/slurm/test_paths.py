"""SLURM rules on files, logs and containers, on scripts as people write them."""

from __future__ import annotations

from support.launches import MLM
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

IMAGE = "srun --container-image=x"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("SLURM005", "mlm", f"torchrun --nnodes=2 --nproc-per-node=8 {MLM} --save /tmp/ckpt\n", "", "error silent never"),
    ("SLURM005", "mlm", f"torchrun --nnodes=1 --nproc-per-node=8 {MLM} --save /tmp/ckpt\n", "", "fine"),
    ("SLURM005", "mlm", f"torchrun --nnodes=2 --nproc-per-node=8 {MLM} --save /shared/ckpt\n", "", "fine"),
    (
        "SLURM005",
        "mlm",
        f"torchrun --nnodes=2 --nproc-per-node=8 {MLM} --load /dev/shm/ckpt\n",
        "",
        "error silent never",
    ),
    (
        "SLURM005",
        "mlm",
        f"torchrun --nnodes=2 --nproc-per-node=8 {MLM} --data-path 1.0 /raid/data\n",
        "",
        "warning silent never",
    ),
    ("SLURM005", "mlm", f"torchrun --nnodes=2 --nproc-per-node=8 {MLM} --save ckpt\n", "", "not concerned"),
    ("SLURM005", "mlm", f"torchrun --nnodes=2 --nproc-per-node=8 {MLM} --save /tmpfs/ckpt\n", "", "fine"),
    (
        "SLURM005",
        "mlm",
        f"export HF_HOME=/tmp/hf\ntorchrun --nnodes=2 --nproc-per-node=8 {MLM}\n",
        "",
        "warning silent never",
    ),
    ("SLURM005", "mlm", f"export HF_HOME=/shared/hf\ntorchrun --nnodes=2 --nproc-per-node=8 {MLM}\n", "", "fine"),
    ("SLURM011", "mlm", f"#SBATCH --output=out.log\n\nsrun python {MLM}\n", "", "not concerned"),
    ("SLURM011", "mlm", f"#SBATCH --output=./%j.out\n\nsrun python {MLM}\n", "", "not concerned"),
    ("SLURM011", "mlm", f"#SBATCH --output=logs/%j.out\n\nsrun python {MLM}\n", "", "needs log_directory"),
    ("SLURM011", "mlm", f"#SBATCH --output=logs/%j/x.out\n\nsrun python {MLM}\n", "", "error crash config"),
    (
        "SLURM011",
        "mlm",
        f"#SBATCH --output=logs/%j.out\nmkdir -p logs\nsrun python {MLM}\n",
        "",
        "warning crash config",
    ),
    (
        "SLURM011",
        "mlm",
        f"#SBATCH --output=logs/%j.out\nmkdir -p logs/extra\nsrun python {MLM}\n",
        "",
        "warning crash config",
    ),
    (
        "SLURM011",
        "mlm",
        f"#SBATCH --output=logs/%j.out\nmkdir -p mylogs\nsrun python {MLM}\n",
        "",
        "needs log_directory",
    ),
    (
        "SLURM011",
        "mlm",
        f"#SBATCH --output=logs/%j.out\nmkdir -p logs\nsrun python {MLM}\n",
        "log_directory=present",
        "fine",
    ),
    (
        "SLURM011",
        "mlm",
        f"#SBATCH --output=logs/%j.out\n\nsrun python {MLM}\n",
        "log_directory=missing",
        "warning crash config",
    ),
    (
        "SLURM011",
        "mlm",
        f'#SBATCH --output=/shared/logs/x\nmkdir -p "/shared/logs"\nsrun python {MLM}\n',
        "",
        "warning crash config",
    ),
    ("SLURM012", "mlm", f"{IMAGE} --container-mounts=/ckpt python {MLM} --save /ckpt/run\n", "", "fine"),
    ("SLURM012", "mlm", f"{IMAGE} --container-mounts=/a:/ckpt:rw,/b:/data python {MLM} --save /ckpt/run\n", "", "fine"),
    (
        "SLURM012",
        "mlm",
        f"{IMAGE} --container-mounts=/ckpt:/a python {MLM} --save /ckpt/run\n",
        "",
        "error silent never",
    ),
    ("SLURM012", "mlm", f"{IMAGE} --container-mounts=/ckpt python {MLM} --save /ckpt2/run\n", "", "error silent never"),
    ("SLURM012", "mlm", f"srun --container-image=x python {MLM} --save /ckpt/run\n", "", "needs srun.container_mounts"),
    (
        "SLURM012",
        "mlm",
        f"{IMAGE} --container-mounts=$M python {MLM} --save /ckpt/run\n",
        "",
        "needs srun.container_mounts",
    ),
    ("SLURM012", "mlm", f"srun --container-image=x python {MLM} --save /home/u1/run\n", "", "fine"),
    (
        "SLURM012",
        "mlm",
        f"{IMAGE} --no-container-mount-home --container-mounts=/data python {MLM} --save /home/u1/run\n",
        "",
        "error silent never",
    ),
    ("SLURM012", "mlm", f"srun --container-mounts=/ckpt python {MLM} --save /data/run\n", "", "not concerned"),
    (
        "SLURM012",
        "mlm",
        f"{IMAGE} --container-mounts=/ckpt python {MLM} --data-path 1.0 /data/a 2.0 /ckpt/b\n",
        "",
        "error silent never",
    ),
]
