"""The faults that lab/jobs/faults.py makes, and what each job should do."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from support.jobs import LAUNCH, Job

WAITS = ("--wait-at", "5")
CODE = """import os, sys, time
if os.environ["RANK"] == "3":
    print("Rank 3, node h, device 1, iteration #7: {said}", flush=True)
    sys.exit({code})
time.sleep(600)
"""


class Fault(NamedTuple):
    """One way to fail. `act` causes it once `steps` steps are trained; the rest is what the first attempt should do.

    `status` None: Slurm ended the script before it could say anything. `kept`: the step of the last checkpoint, at
    least. `excluded`: whether the next attempt leaves out the node of rank 3 (None: another, or not looked at).
    """

    name: str
    start: str
    status: str | None
    code: int | None
    then: str
    first: str | None
    kept: int
    act: Callable[[Job], object] = lambda job: None
    steps: int = 0
    options: tuple[str, ...] = ("--requeue", "1")
    trainer: tuple[str, ...] = ()
    launch: tuple[str, ...] = tuple(LAUNCH)
    before: Callable[[Job], object] = lambda job: None
    sbatch: tuple[str, ...] = ()
    iters: int = 8
    excluded: bool | None = False


def _signal(job: Job) -> None:
    job.slurm.run("scancel", "--signal=USR1", "--batch", str(job.id))


def _preempt(job: Job) -> None:
    job.slurm.preempt(job.id)


def _cancel(job: Job) -> None:
    job.slurm.run("scancel", str(job.id))


def _kill_stepd(job: Job) -> None:
    """The daemon of the training's step on n2: the parent of the rank or launcher there."""
    daemons = {
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if re.match(rf"slurmstepd: \[{job.id}\.\d+\]", _read(path))
    }
    for path in Path("/proc").glob("[0-9]*/environ"):
        parent = re.search(r"^PPid:\s+(\d+)", _read(path.with_name("status")), re.M)
        if parent and int(parent[1]) in daemons and "\0SLURMD_NODENAME=n2\0" in _read(path):
            os.kill(int(parent[1]), signal.SIGKILL)
            return
    raise AssertionError(f"job {job.id} has no slurmstepd on n2")


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # it has ended
        return ""


def _short_wait(job: Job) -> None:
    job.edit = lambda: job.replace("--wait=600", "--wait=20")  # type: ignore[attr-defined]


def _lose_node(job: Job) -> None:
    """Its daemon answers, so Slurm takes it back on its own (ReturnToService)."""
    job.slurm.run("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=lost")


def _program(text: str) -> Callable[[Job], None]:
    def write(job: Job) -> None:
        job.program = job.folder / "own.py"
        job.program.write_text(text)

    return write


def _short_stall(job: Job) -> None:
    job.edit = lambda: job.hurry_the_watchdog(10)  # type: ignore[attr-defined]


def _versions(job: Job) -> None:
    """On n2 Python finds another transformer-engine than on n1."""
    (job.folder / "site").mkdir()
    (job.folder / "site" / "sitecustomize.py").write_text(
        "import os, sys\nsys.path.append(os.path.dirname(__file__) + '/' + os.environ.get('SLURMD_NODENAME', ''))\n"
    )
    for node, version in (("n1", "2.1.0"), ("n2", "2.2.0")):
        info = job.folder / "site" / node / f"transformer_engine-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: transformer-engine\nVersion: {version}\n")
    line = f'export PYTHONPATH="{job.folder}/site:$PYTHONPATH"\n'
    job.edit = lambda: job.replace("set -euo pipefail\n", f"set -euo pipefail\n{line}")  # type: ignore[attr-defined]


def _file_for_folder(job: Job) -> None:
    job.checkpoints.write_text("")


def _at_the_limit(how: str, seconds: int, *, code: int, kept: int) -> Fault:
    """Slurm asks 30 s (to 60 s) before the end, the save takes so many seconds. The timeout holds a waiting rank."""
    return Fault(
        f"time limit, the save is {how}",
        "torchrun",
        "preempted",
        code,
        "requeue",
        None,
        kept,
        options=("--requeue", "1", "--time", "2", "--signal", "30"),
        trainer=(*WAITS, "--timeout", "600", "--save-seconds", str(seconds)),
    )


def every_fault() -> list[Fault]:
    killed = ("--fail-rank", "3", "--fail-step", "5", "--fail-how", "kill")
    segfaults = (*killed[:-1], "segfault")
    # A process that is killed says nothing: its launcher does.
    reported = {"srun": "srun-task", "torchrun": "torchrun-worker", "ft_launcher": "torchrun-worker"}
    found = []
    for start in ("srun", "torchrun", "ft_launcher"):
        found += [
            Fault(
                "Slurm's signal before the end", start, "preempted", 0, "requeue", None, 5, _signal, 5, trainer=WAITS
            ),
            Fault("preempted, with grace", start, "preempted", 0, "requeue", None, 5, _preempt, 5, trainer=WAITS),
            Fault("scancel", start, "terminated", None, "none", None, 5, _cancel, 5, trainer=WAITS),
            Fault("a rank killed, every time", start, "failed", 137, "requeue", reported[start], 4, trainer=killed),
            Fault("a segfault, every time", start, "failed", 139, "requeue", reported[start], 4, trainer=segfaults),
        ]
    hang = ("--fail-rank", "2", "--fail-step", "3", "--fail-how", "hang")
    for start in ("srun", "torchrun"):
        found += [
            Fault(
                "a rank hangs, with --stall",
                start,
                "failed",
                134,
                "requeue",
                "hcp-stalled",
                2,
                options=("--requeue", "1", "--stall", "1"),
                trainer=hang,
                before=_short_stall,
            ),
            Fault(
                "slurmstepd killed",
                start,
                "failed",
                None,
                "requeue",
                None,
                4,
                _kill_stepd,
                5,
                trainer=(*WAITS, "--timeout", "20"),
                before=_short_wait,
            ),
            Fault("a node goes down", start, None, None, "requeue", "node-failure", 4, _lose_node, 5, trainer=WAITS),
            Fault(
                "exit code 17, transient",
                start,
                "failed",
                17,
                "requeue",
                None,
                0,
                before=_program(CODE.format(code=17, said="Possible transient error!!")),
                excluded=True,
            ),
            Fault(
                "exit code 16",
                start,
                "failed",
                16,
                "requeue",
                None,
                0,
                before=_program(CODE.format(code=16, said="First rerun: unexpected result is reproducible")),
                excluded=True,
            ),
        ]
    alone: list[Fault] = [
        Fault(
            "scancel, the save is too slow",
            "torchrun",
            "terminated",
            137,
            "none",
            "job-cancelled",
            4,
            _cancel,
            5,
            trainer=(*WAITS, "--save-seconds", "300"),
        ),
        _at_the_limit("quick", 0, code=0, kept=5),
        _at_the_limit("slow", 20, code=0, kept=5),
        _at_the_limit("too slow", 300, code=137, kept=4),
        Fault("--export=NONE", "srun", "completed", 0, "none", None, 8, sbatch=("--export=NONE",)),
        Fault("a launch with an error", "srun", "stopped", 1, "none", "hcp-check", 0, launch=(*LAUNCH[:-3], "3", "2")),
        Fault(
            "a wrong world size",
            "srun",
            "stopped",
            1,
            "none",
            "hcp-check",
            0,
            launch=("--context-parallel-size", "3", *LAUNCH[2:4], "--exit-signal-handler"),
        ),
        Fault(
            "a program that is not there",
            "srun",
            "failed",
            2,
            "none",
            None,
            0,
            before=lambda job: setattr(job, "program", job.folder / "missing.py"),
        ),
        Fault(
            "the checkpoint folder cannot be written",
            "srun",
            "stopped",
            1,
            "none",
            "hcp-stopped",
            0,
            before=_file_for_folder,
        ),
        Fault(
            "too little room for checkpoints",
            "srun",
            "stopped",
            1,
            "none",
            "hcp-stopped",
            0,
            options=("--requeue", "1", "--free-gib", "999999"),
        ),
        Fault(
            "nodes without their GPUs",
            "srun",
            "stopped",
            1,
            "none",
            "hcp-stopped",
            0,
            options=("--requeue", "1", "--gpu-request", "gres"),
        ),
        Fault("nodes with different versions", "srun", "stopped", 1, "none", "hcp-stopped", 0, before=_versions),
        Fault(
            "an unfit node",
            "srun",
            "stopped",
            1,
            "requeue",
            "hcp-stopped",
            0,
            options=("--requeue", "1", "--health", "bash -c 'test $SLURMD_NODENAME != n2'"),
            excluded=True,
        ),
        Fault(
            "the requeue limit",
            "srun",
            "preempted",
            1,
            "none",
            None,
            5,
            _signal,
            5,
            options=("--requeue", "0"),
            trainer=WAITS,
        ),
    ]
    return found + alone
