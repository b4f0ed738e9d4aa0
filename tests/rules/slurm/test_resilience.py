"""SLURM rules on signals, restarts and requeues, on scripts as people write them."""

from __future__ import annotations

from support.launches import MLM
from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

LOG, RETHROW, NVLS = "TORCH_CPP_LOG_LEVEL=error", "TORCH_NCCL_RETHROW_CUDA_ERRORS=0", "NCCL_NVLS_ENABLE=0"
RESTARTING = f"export {LOG} {RETHROW} {NVLS}\nsrun"
HARD = f"{RESTARTING} python {MLM} --inprocess-restart --inprocess-hard-timeout"
RESTART = f"srun python {MLM} --inprocess-restart\n"
TIMEOUTS = "--ft-rank_section_timeouts"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("SLURM007", "mlm", f"ft_launcher {MLM} --enable-ft-package\n", "", "fine"),
    ("SLURM007", "mlm", f"ft_launcher {MLM}\n", "", "not concerned"),
    ("SLURM007", "mlm", f"torchrun {MLM} --enable-ft-package\n", "", "error crash init"),
    ("SLURM007", "mlm", f"torchrun {MLM}\n", "", "not concerned"),
    ("SLURM007", "mlm", f"srun python {MLM} --enable-ft-package\n", "", "error crash init"),
    ("SLURM007", "mlm", f"srun python {MLM}\n", "", "not concerned"),
    ("SLURM008", "mlm", f"{RESTARTING} python {MLM} --inprocess-restart\n", "", "fine"),
    ("SLURM008", "mlm", f"{RESTARTING} --kill-on-bad-exit=0 python {MLM} --inprocess-restart\n", "", "fine"),
    (
        "SLURM008",
        "mlm",
        f"{RESTARTING} --kill-on-bad-exit=1 python {MLM} --inprocess-restart\n",
        "",
        "error crash training",
    ),
    ("SLURM008", "mlm", f"{RESTARTING} -K python {MLM} --inprocess-restart\n", "", "error crash training"),
    ("SLURM008", "mlm", f"{HARD} 600\n", "", "error crash training"),
    ("SLURM008", "mlm", f"{HARD} 599\n", "", "fine"),
    ("SLURM008", "mlm", f"{HARD} 600 --distributed-timeout-minutes 30\n", "", "fine"),
    ("SLURM008", "mlm", f"export {RETHROW} {NVLS}\n{RESTART}", "", "error crash training"),
    ("SLURM008", "mlm", f"export {LOG} {NVLS}\n{RESTART}", "", "error crash training"),
    ("SLURM008", "mlm", f"export {LOG} {RETHROW}\n{RESTART}", "", "error crash training"),
    ("SLURM008", "mlm", "--num-layers 2", "", "not concerned"),
    ("SLURM008", "mlm", f"export {LOG} {RETHROW} NCCL_NVLS_ENABLE=$N\n{RESTART}", "", "needs env.NCCL_NVLS_ENABLE"),
    ("SLURM008", "mlm", f"{RESTARTING} python {MLM} --inprocess-restart\n", "distributed_timeout_minutes=null", "fine"),
    ("SLURM008", "mlm", f"{RESTARTING} python {MLM} --inprocess-restart\n", "inprocess_hard_timeout=null", "fine"),
    ("SLURM009", "mlm", f"ft_launcher {TIMEOUTS}=step:900 {MLM}\n", "", "fine"),
    ("SLURM009", "mlm", f"ft_launcher {TIMEOUTS}=step:100 {MLM}\n", "", "needs step_s"),
    ("SLURM009", "mlm", f"ft_launcher {TIMEOUTS}=step:100 {MLM}\n", "step_s=30.0", "fine"),
    ("SLURM009", "mlm", f"ft_launcher {TIMEOUTS}=step:100 {MLM}\n", "step_s=100.0", "warning crash training"),
    (
        "SLURM009",
        "mlm",
        f"ft_launcher {TIMEOUTS}=setup:600,step:900,checkpointing:420 {MLM}\n",
        "checkpoint_s=500.0",
        "warning crash training",
    ),
    ("SLURM009", "mlm", f"ft_launcher {TIMEOUTS}=step:900 {MLM}\n", "step_s=1000.0", "warning crash training"),
    ("SLURM009", "mlm", f"ft_launcher {TIMEOUTS}=setup:5 {MLM}\n", "", "fine"),
    ("SLURM009", "mlm", f"torchrun {TIMEOUTS}=step:100 {MLM}\n", "", "not concerned"),
    ("SLURM009", "mlm", f"ft_launcher {MLM}\n", "", "not concerned"),
    ("SLURM009", "mlm", f"ft_launcher --ft-param-rank_section_timeouts=step:100 {MLM}\n", "", "needs step_s"),
    ("SLURM009", "mlm", f"ft_launcher {TIMEOUTS}=step:300 {MLM}\n", "", "fine"),
    ("SLURM009", "mlm", f"ft_launcher {TIMEOUTS}=step:299 {MLM}\n", "", "needs step_s"),
    ("SLURM009", "mlm", f"ft_launcher {TIMEOUTS}=step:100 {MLM}\n", "step_s=null", "fine"),
    ("SLURM010", "mlm", f"#!/bin/bash\n#SBATCH --requeue\nsrun python {MLM}\n", "", "warning hang never"),
    ("SLURM010", "mlm", f"#!/bin/bash\n#SBATCH --no-requeue\nsrun python {MLM}\n", "", "not concerned"),
    ("SLURM010", "mlm", f"#!/bin/bash\nsrun python {MLM}\n", "", "not concerned"),
    (
        "SLURM010",
        "mlm",
        f"#!/bin/bash\n#SBATCH --requeue\n# look at SLURM_RESTART_COUNT\nsrun python {MLM}\n",
        "",
        "warning hang never",
    ),
    (
        "SLURM010",
        "mlm",
        f"#!/bin/bash\n#SBATCH --requeue\n[ ${{SLURM_RESTART_COUNT:-0}} -lt 4 ] || exit 1\nsrun python {MLM}\n",
        "",
        "fine",
    ),
    (
        "SLURM010",
        "mlm",
        f"#!/bin/bash\ntrap 'scontrol requeue $SLURM_JOB_ID' USR1\nsrun python {MLM}\n",
        "",
        "warning hang never",
    ),
    ("SLURM010", "mlm", "--num-layers 2", "sbatch.requeue=true", "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("SLURM008", "mlm", f"export {LOG} {RETHROW}\n{RESTART}", "", "NCCL_NVLS_ENABLE is not set"),
    ("SLURM008", "mlm", f"export {LOG} {RETHROW} NCCL_NVLS_ENABLE=1\n{RESTART}", "", "NCCL_NVLS_ENABLE is 1"),
    ("SLURM010", "mlm", f"#SBATCH --requeue\nsrun python {MLM}\n", "", "--requeue, and nothing checks"),
    (
        "SLURM010",
        "mlm",
        f"trap 'scontrol requeue $SLURM_JOB_ID' USR1\nsrun python {MLM}\n",
        "",
        "the script requeues itself",
    ),
]

_QUIET = (
    "inprocess_restart=true distributed_timeout_minutes=9 inprocess_hard_timeout=90 env.TORCH_CPP_LOG_LEVEL=error "
    "env.TORCH_NCCL_RETHROW_CUDA_ERRORS=0 env.NCCL_NVLS_ENABLE=0"
)
FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("SLURM008", "mlm", "", f"{_QUIET} srun.kill_on_bad_exit=1", ("srun.kill_on_bad_exit=0",)),
    ("SLURM008", "mlm", f"{HARD} 600\n", "", ("distributed_timeout_minutes=20",)),
]
