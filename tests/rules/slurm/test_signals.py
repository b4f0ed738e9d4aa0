"""SLURM006: whether the signal before the end of a job reaches ranks that listen, by what starts them."""

from __future__ import annotations

from support.launches import MLM
from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

HANDLER = f"srun python {MLM} --exit-signal-handler\n"
BATCH, STEPS = "#SBATCH --signal=B:USR1@600\n", "#SBATCH --signal=TERM@600\n"
TRAP = "trap 'scancel --signal=TERM $SLURM_JOB_ID' USR1\n"
BEHIND = f"srun python {MLM} --exit-signal-handler &\nwait $!\n"
TORCHRUN, FT = (f"srun {name} {MLM} --exit-signal-handler\n" for name in ("torchrun", "ft_launcher"))
BEHIND_TORCHRUN = TORCHRUN.replace("\n", " &\nwait $!\n")
WRAPPER = "node='trap \"pkill -TERM -P $$\" TERM; torchrun'\n"
PATIENT = "export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=500\n"
LOST = "warning silent never"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("SLURM006", "mlm", f"{STEPS}{HANDLER}", "", "fine"),
    ("SLURM006", "mlm", f"#SBATCH --signal=15@600\n{HANDLER}", "", "fine"),
    ("SLURM006", "mlm", f"#SBATCH --signal=SIGTERM@600\n{HANDLER}", "", "fine"),
    ("SLURM006", "mlm", f"{STEPS}srun python {MLM}\n", "", LOST),
    ("SLURM006", "mlm", f"#SBATCH --signal=USR1@600\n{HANDLER}", "", LOST),
    # Slurm sees ranks that ended with 0, and requeues nothing.
    ("SLURM006", "mlm", f"{STEPS}#SBATCH --requeue\n{HANDLER}", "", LOST),
    ("SLURM006", "mlm", f"{STEPS}#SBATCH --requeue\n{HANDLER}scontrol requeue $SLURM_JOB_ID\n", "", "fine"),
    ("SLURM006", "mlm", f"{STEPS}#SBATCH --requeue\n{HANDLER}# scontrol requeue\n", "", LOST),
    ("SLURM006", "mlm", f"{STEPS}#SBATCH --no-requeue\n{HANDLER}", "", "fine"),
    ("SLURM006", "mlm", f"{STEPS}#SBATCH --requeue\nsrun torchrun {MLM} --exit-signal-handler\n", "", LOST),
    # B: ends a bash without a trap at once, and one in the foreground hears it too late.
    ("SLURM006", "mlm", f"{BATCH}{HANDLER}", "", LOST),
    ("SLURM006", "mlm", f"{BATCH}{TRAP}{HANDLER}", "", LOST),
    ("SLURM006", "mlm", f"{BATCH}{TRAP}{BEHIND}", "", "fine"),
    ("SLURM006", "mlm", f"{BATCH}{TRAP.replace('USR1', '10')}{BEHIND}", "", "fine"),
    ("SLURM006", "mlm", f"{BATCH}{TRAP.replace('USR1', 'SIGUSR1 EXIT')}{BEHIND}", "", "fine"),
    ("SLURM006", "mlm", f"{BATCH}{TRAP.replace(' USR1', ' USR2')}{BEHIND}", "", LOST),
    ("SLURM006", "mlm", f"{BATCH}# {TRAP}{BEHIND}", "", LOST),
    ("SLURM006", "mlm", f"{BATCH}source traps.sh\n{HANDLER}", "", "fine"),
    ("SLURM006", "mlm", f"{BATCH}{TRAP}# wait\n{HANDLER}", "", LOST),
    # An elastic agent gets the signal instead of its ranks.
    ("SLURM006", "mlm", f"{STEPS}{TORCHRUN}", "", LOST),
    ("SLURM006", "mlm", f"{STEPS}{FT}", "", LOST),
    ("SLURM006", "mlm", f"{STEPS}{PATIENT}{TORCHRUN}", "", "fine"),
    ("SLURM006", "mlm", f"{STEPS}{PATIENT.replace('500', '$S')}{TORCHRUN}", "", "fine"),
    ("SLURM006", "mlm", f"{STEPS}{WRAPPER}{TORCHRUN}", "", "fine"),
    ("SLURM006", "mlm", f"{BATCH}{TRAP}{BEHIND_TORCHRUN}", "", LOST),
    ("SLURM006", "mlm", f"{BATCH}{TRAP}{WRAPPER}{BEHIND_TORCHRUN}", "", "fine"),
    ("SLURM006", "mlm", f"{BATCH}{TRAP}trap cleanup EXIT\n{BEHIND_TORCHRUN}", "", LOST),
    ("SLURM006", "mlm", f"{BATCH}{BEHIND_TORCHRUN}", "", LOST),
    ("SLURM006", "mlm", f"#SBATCH --signal=TERM@120\n{HANDLER}", "", "needs checkpoint_s"),
    ("SLURM006", "mlm", f"#SBATCH --signal=TERM@120\n{HANDLER}", "checkpoint_s=90.0", "fine"),
    ("SLURM006", "mlm", f"#SBATCH --signal=TERM@120\n{HANDLER}", "checkpoint_s=300.0", LOST),
    ("SLURM006", "mlm", f"{STEPS}{HANDLER}", "checkpoint_s=900.0", LOST),
    ("SLURM006", "mlm", f"#SBATCH --signal=TERM@30\n{HANDLER}", "", LOST),
    ("SLURM006", "mlm", f"#SBATCH --signal=TERM\n{HANDLER}", "checkpoint_s=90.0", LOST),
    ("SLURM006", "verl", "", "sbatch.signal=B:USR1@600", "not concerned"),
    ("SLURM006", "mlm", "--num-layers 2", "", "not concerned"),
    ("SLURM006", "mlm", "--exit-signal-handler", "sbatch.signal=soon", "fine"),  # Slurm refuses it
    ("SLURM006", "mlm", "--exit-signal-handler", "sbatch.signal=USR1@600 exit_signal=SIGUSR1", "fine"),
    # The trainer handles the signal that --exit-signal names, instead of SIGTERM.
    ("SLURM006", "mlm", f"#SBATCH --signal=USR1@600\n{HANDLER[:-1]} --exit-signal SIGUSR1\n", "", "fine"),
    ("SLURM006", "mlm", f"#SBATCH --signal=10@600\n{HANDLER[:-1]} --exit-signal SIGUSR1\n", "", "fine"),
    ("SLURM006", "mlm", f"#SBATCH --signal=TERM@600\n{HANDLER[:-1]} --exit-signal SIGUSR1\n", "", LOST),
    ("SLURM006", "mlm", f"#SBATCH --signal=TERM@600\n{HANDLER[:-1]} --exit-signal SIGTERM\n", "", "fine"),
    ("SLURM006", "mlm", f"#SBATCH --signal=15@600\n{HANDLER}", "", "fine"),
    ("SLURM006", "bridge", "train.exit_signal_handler=true train.exit_signal=12", "sbatch.signal=USR2@600", "fine"),
    ("SLURM006", "bridge", "train.exit_signal_handler=true train.exit_signal=64", "sbatch.signal=USR2@600", "fine"),
    # A signal at the start of the job, in each form of --time.
    ("SLURM006", "mlm", f"#SBATCH --time=30 --signal=TERM@1800\n{HANDLER}", "", LOST),
    ("SLURM006", "mlm", f"#SBATCH --time=30 --signal=TERM@1799\n{HANDLER}", "", "fine"),
    ("SLURM006", "mlm", f"#SBATCH --time=30:30 --signal=TERM@1830\n{HANDLER}", "", LOST),
    ("SLURM006", "mlm", f"#SBATCH --time=30:30 --signal=TERM@1829\n{HANDLER}", "", "fine"),
    ("SLURM006", "mlm", f"#SBATCH --time=1:00:30 --signal=TERM@3630\n{HANDLER}", "", LOST),
    ("SLURM006", "mlm", f"#SBATCH --time=1:00:30 --signal=TERM@3629\n{HANDLER}", "", "fine"),
    ("SLURM006", "mlm", f"#SBATCH --time=1-2 --signal=TERM@93600\n{HANDLER}", "", LOST),
    ("SLURM006", "mlm", f"#SBATCH --time=1-2 --signal=TERM@93599\n{HANDLER}", "", "fine"),
    ("SLURM006", "mlm", f"#SBATCH --time=1-2:30 --signal=TERM@95400\n{HANDLER}", "", LOST),
    ("SLURM006", "mlm", f"#SBATCH --time=0 --signal=TERM@600\n{HANDLER}", "", "fine"),  # no limit
    # Whether a script that is not there has a trap is not asked.
    ("SLURM006", "mlm", "--exit-signal-handler", "sbatch.signal=B:TERM@300", "fine"),
    ("SLURM006", "mlm", "--exit-signal-handler", "sbatch.signal=B:TERM@299", "needs checkpoint_s"),
    ("SLURM006", "mlm", "--exit-signal-handler", "sbatch.signal=B:TERM@60 checkpoint_s=30", "fine"),
    ("SLURM006", "mlm", "--exit-signal-handler", "sbatch.signal=B:TERM@59 checkpoint_s=30", LOST),
    ("SLURM006", "mlm", "--exit-signal-handler", "sbatch.signal=B:TERM checkpoint_s=60", "fine"),
    ("SLURM006", "mlm", "--exit-signal-handler", "sbatch.signal=B:TERM@120 checkpoint_s=120", "fine"),
    ("SLURM006", "mlm", "--exit-signal-handler", "sbatch.signal=B:TERM@120 checkpoint_s=null", "fine"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("SLURM006", "mlm", f"{STEPS}srun python {MLM}\n", "", "without the exit-signal handler"),
    ("SLURM006", "mlm", f"#SBATCH --signal=USR1@600\n{HANDLER}", "", "message: gets SIGUSR1, which ends it at once"),
    ("SLURM006", "mlm", f"{STEPS}#SBATCH --requeue\n{HANDLER}", "", "found: no scontrol requeue"),
    ("SLURM006", "mlm", f"{BATCH}{HANDLER}", "", "message: bash has no trap for SIGUSR1"),
    ("SLURM006", "mlm", f"{BATCH}{TRAP}{HANDLER}", "", "message: handled after training"),
    ("SLURM006", "mlm", f"{STEPS}{TORCHRUN}", "", "message: torchrun gets the signal instead of its ranks"),
    ("SLURM006", "mlm", f"{STEPS}{FT}", "", "message: ft_launcher gets the signal instead of its ranks"),
    ("SLURM006", "mlm", f"{BATCH}{TRAP}{BEHIND_TORCHRUN}", "", "message: reaches torchrun, not its ranks"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("SLURM006", "mlm", "", "exit_signal_handler=true sbatch.signal=USR1@30", ("sbatch.signal=TERM@300",)),
    ("SLURM006", "mlm", "", "exit_signal_handler=true sbatch.signal=USR1@600", ("sbatch.signal=TERM@600",)),
    ("SLURM006", "mlm", "", "exit_signal_handler=true sbatch.signal=TERM@30", ("sbatch.signal=TERM@300",)),
    ("SLURM006", "mlm", "", "exit_signal_handler=true sbatch.signal=B:USR1@30", ("sbatch.signal=B:USR1@300",)),
    (
        "SLURM006",
        "mlm",
        "",
        "exit_signal_handler=true sbatch.signal=TERM@600 checkpoint_s=700",
        ("sbatch.signal=TERM@1400",),
    ),
    (
        "SLURM006",
        "mlm",
        "",
        "exit_signal_handler=true sbatch.signal=TERM@70 checkpoint_s=100",
        ("sbatch.signal=TERM@300",),
    ),
    ("SLURM006", "mlm", f"{BATCH}{HANDLER}", "", ("sbatch.signal=TERM@600",)),
    ("SLURM006", "mlm", f"{BATCH}#SBATCH --requeue\n{HANDLER}", "", ()),
    ("SLURM006", "mlm", f"{BATCH}{TORCHRUN}", "", ()),
    ("SLURM006", "mlm", f"#SBATCH --signal=USR1@600\n{TORCHRUN}", "", ()),
]
