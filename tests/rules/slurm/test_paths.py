"""SLURM rules on files, logs and containers, on scripts as people write them."""

from __future__ import annotations

from support.launches import MLM
from support.rules import Row, test_text, test_verdict

__all__ = ["test_text", "test_verdict"]

IMAGE = "srun --container-image=x"
LOGS = "#SBATCH --output=logs/%j.out\n"
RUN = f"srun python {MLM}\n"

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
    ("SLURM005", "mlm", "--save /tmp", "nodes=2", "error silent never"),
    ("SLURM011", "mlm", f"#SBATCH --output=out.log\n\n{RUN}", "", "not concerned"),
    ("SLURM011", "mlm", f"#SBATCH --output=./%j.out\n\n{RUN}", "", "not concerned"),
    ("SLURM011", "mlm", f"{LOGS}{RUN}", "", "needs log_directory"),
    ("SLURM011", "mlm", f"#SBATCH --output=logs/%j/x.out\n\n{RUN}", "", "error crash config"),
    # sbatch(1), filename pattern: the user and the job's name are known when the job is submitted.
    ("SLURM011", "mlm", f"#SBATCH --output=/logs/%u/%x/%j.out\n\n{RUN}", "", "needs log_directory"),
    ("SLURM011", "mlm", f"#SBATCH --output=/logs/%u/%x/%j.out\n\n{RUN}", "log_directory=present", "fine"),
    ("SLURM011", "mlm", f"#SBATCH --output=100%%/%j.out\n\n{RUN}", "log_directory=present", "fine"),
    ("SLURM011", "mlm", f"#SBATCH --output=logs/%x-%j/x.out\n\n{RUN}", "log_directory=present", "error crash config"),
    ("SLURM011", "mlm", f"#SBATCH --output=logs/%%%j/x.out\n\n{RUN}", "", "error crash config"),
    ("SLURM011", "mlm", f"#SBATCH --output=logs/%A/x.out\n\n{RUN}", "", "error crash config"),
    ("SLURM011", "mlm", f"{LOGS}mkdir -p logs\n{RUN}", "", "warning crash config"),
    ("SLURM011", "mlm", f"{LOGS}mkdir -p logs/extra\n{RUN}", "", "warning crash config"),
    ("SLURM011", "mlm", f"{LOGS}mkdir -p mylogs\n{RUN}", "", "needs log_directory"),
    ("SLURM011", "mlm", f"{LOGS}mkdir -p logs\n{RUN}", "log_directory=present", "fine"),
    ("SLURM011", "mlm", f"{LOGS}{RUN}", "log_directory=missing", "warning crash config"),
    ("SLURM011", "mlm", f'#SBATCH --output=/shared/logs/x\nmkdir -p "/shared/logs"\n{RUN}', "", "warning crash config"),
    ("SLURM011", "mlm", "--num-layers 2", "sbatch.output=logs/x.out", "needs log_directory"),
    ("SLURM011", "mlm", f"#SBATCH --error=logs/%j.err\n{RUN}", "", "needs log_directory"),
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
    ("SLURM012", "mlm", f"{IMAGE} --container-mounts=/ckpt python {MLM} --save /ckpt\n", "", "fine"),
    (
        "SLURM012",
        "mlm",
        f"#SBATCH --container-image=x\n#SBATCH --container-mounts=/ckpt\n{RUN[:-1]} --save /data/run\n",
        "",
        "error silent never",
    ),
    (
        "SLURM012",
        "mlm",
        f"#SBATCH --no-container-mount-home\n{IMAGE} --container-mounts=/a python {MLM} --save /home/u1/run\n",
        "",
        "error silent never",
    ),
    ("SLURM012", "mlm", f"{IMAGE} python {MLM}\n", "", "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("SLURM011", "mlm", f"{LOGS}mkdir -p logs\n{RUN}", "", "the job itself creates logs"),
    ("SLURM011", "mlm", f"{LOGS}{RUN}", "log_directory=missing", "no folder logs"),
    ("SLURM012", "mlm", f"{IMAGE} --container-mounts=/data, python {MLM} --save /ckpt/run\n", "", "mounts /data |"),
    ("SLURM012", "mlm", f"{IMAGE} --container-mounts=, python {MLM} --save /ckpt/run\n", "", "mounts none"),
]
