"""What goes wrong in a job of lab/jobs/faults.py while it runs; each by the name that faults.txt gives it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from pathlib import Path

from support.jobs import Job


def signal_batch(job: Job) -> None:
    job.slurm.run("scancel", "--signal=USR1", "--batch", str(job.id))


def signal_twice(job: Job) -> None:
    signal_batch(job)
    time.sleep(2)
    signal_batch(job)


def preempt(job: Job) -> None:
    job.slurm.preempt(job.id)


def cancel(job: Job) -> None:
    job.slurm.run("scancel", str(job.id))


def kill_all(job: Job) -> None:
    job.slurm.run("scancel", "--signal=KILL", str(job.id))


def requeue(job: Job) -> None:
    job.slurm.run("scontrol", "requeue", str(job.id))


def suspend(job: Job) -> None:
    job.slurm.run("scontrol", "suspend", str(job.id))
    time.sleep(10)
    job.slurm.run("scontrol", "resume", str(job.id))


def second_job(job: Job) -> None:
    """Another job of the same script waits for the folder in vain; then the first may end."""
    second = job.slurm.submit(job.script, cwd=job.folder)
    job.slurm.wait_for_state(second, "FAILED", "COMPLETED")
    said = (job.folder / "logs" / f"job-{second}.out").read_text()
    assert f"job {job.id} writes checkpoints" in said, said
    signal_batch(job)


def lose_node(job: Job) -> None:
    """Its daemon answers, so Slurm takes it back on its own (ReturnToService)."""
    job.slurm.run("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=lost")


def freeze_node(job: Job) -> None:
    """All of n2 stops, and Slurm finds that out; it thaws once the job has gone on."""
    found = _of_job(job, "n2")
    for pid in found:
        _send(pid, signal.SIGSTOP)
    lose_node(job)
    job.slurm.wait_for_state(job.id, "PENDING")
    for pid in found:
        _send(pid, signal.SIGCONT)


def freeze_controller(job: Job) -> None:
    controller = next(daemon for daemon in job.slurm.daemons if str(daemon.args[0]) == "slurmctld")
    controller.send_signal(signal.SIGSTOP)
    time.sleep(10)
    controller.send_signal(signal.SIGCONT)


def lose_folder(job: Job) -> None:
    shutil.rmtree(job.run, ignore_errors=True)


def kill_stepd(job: Job) -> None:
    """The daemon of the training's step on n2: the parent of the supervisor there."""
    _kill(_parent(_find(job, "n2", " job run ")))


def kill_supervisor(job: Job) -> None:
    _kill(_find(job, "n2", " job run "))


def kill_leader(job: Job) -> None:
    _kill(_find(job, "n1", " job run ", SLURM_PROCID="0", SLURM_STEP_ID="0"))


def kill_launcher(job: Job) -> None:
    _kill(_find(job, "n2", "torch.distributed.run --"))


def kill_raylet(job: Job) -> None:
    _kill(_find(job, "n2", "/raylet/raylet "))


def kill_script(job: Job) -> None:
    _kill(_find(job, "n1", f"/job{job.id:05d}/slurm_script"))


ACTS = {
    act.__name__: act
    for act in (
        signal_twice,
        preempt,
        cancel,
        kill_all,
        requeue,
        suspend,
        second_job,
        lose_node,
        freeze_node,
        freeze_controller,
        lose_folder,
        kill_stepd,
        kill_supervisor,
        kill_leader,
        kill_launcher,
        kill_raylet,
        kill_script,
    )
} | {"signal": signal_batch}


def _of_job(job: Job, node: str) -> list[int]:
    """The job's processes on a node, by their environment, in the order of their numbers."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        pid, mark = int(path.name), str(job.slurm.folder)
        own = {"HCP_TEST_CLUSTER": mark, "SLURMD_NODENAME": node, "SLURM_JOB_ID": str(job.id)}
        if all(_variable(pid, name) == value for name, value in own.items()):
            found.append(pid)
    return sorted(found)


def _find(job: Job, node: str, words: str, **variables: str) -> int:
    """The first process of the job on a node whose command has these words, and which has these variables."""
    for pid in _of_job(job, node):
        if words in _command(pid) and all(_variable(pid, name) == value for name, value in variables.items()):
            return pid
    raise AssertionError(f"job {job.id} runs no {words!r} on {node}")


def _variable(pid: int, name: str) -> str:
    for text in _read(Path(f"/proc/{pid}/environ")).split("\0"):
        if text.startswith(f"{name}="):
            return text.partition("=")[2]
    return ""


def _command(pid: int) -> str:
    return _read(Path(f"/proc/{pid}/cmdline")).replace("\0", " ")


def _parent(pid: int) -> int:
    match = re.search(r"^PPid:\s+(\d+)", _read(Path(f"/proc/{pid}/status")), re.M)
    return int(match[1]) if match else 0


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # it has ended
        return ""
