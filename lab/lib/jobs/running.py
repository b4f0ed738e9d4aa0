"""One faulty job on a cluster, what it came to, and what of that is not as wanted."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from jobs.acts import ACTS
from jobs.agreement import disagreements
from jobs.faults_list import Fault
from jobs.setups import BEFORE
from program import ROOT

from support.jobs import Job
from support.needs import LAUNCHERS
from support.slurm import Cluster

LIGHT = ROOT / "lab" / "lib" / "jobs" / "light_trainer.py"
_ENDS = ("PENDING", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY")
_VERL = (
    "actor_rollout_ref.actor.strategy=megatron",
    "actor_rollout_ref.actor.megatron.context_parallel_size=2",
    "actor_rollout_ref.actor.use_dynamic_bsz=True",
)


class FaultyJob(Job):
    """A job with one fault. `edits`: what changes its script; `text`: a launch of its own."""

    def __init__(self, fault: Fault, cluster: Cluster, folder: Path) -> None:
        super().__init__(cluster, _hcp, ROOT, folder)
        self.options, self.trainer = [*fault.options], [*fault.trainer]
        self.edits: list[Any] = []
        self.text = ""
        if fault.light:
            self.program = LIGHT
        for name in fault.before:
            BEFORE[name](self)

    def written(self, fault: Fault) -> str:
        """Renders the script; the refusal, if there is one."""
        if self.text:
            (self.folder / "train.sbatch").write_text(self.text)
            done = _hcp("render", "train.sbatch", "-o", self.script, cwd=self.folder)
        elif fault.start == "ray":
            sizes = "--nodes 2 --gpus-per-node 2 --time 10 --signal 60 --gpu-request none --logs logs".split()
            own = ["--python", sys.executable, "--program", self.program, "--dialect", "verl", "--job-name", "job"]
            words = [*sizes, *own, "--nodelist", "n[1-2]", "-o", self.script, *self.options, "--", *_VERL]
            done = _hcp("render", "--start", "ray", *words, cwd=self.folder)
        else:
            of_fault: dict[str, Any] = {"trainer": self.trainer, "launch": fault.launch, "iters": fault.iters}
            done = self.try_render(fault.start, *self.options, **of_fault)
        if done.returncode == 2:
            return str(done.stderr).strip()
        assert done.returncode in (0, 1), done.stderr
        for edit in self.edits:
            edit()
        return ""

    def triage(self) -> dict[str, Any]:
        """Of its own logs: another job may write beside it."""
        done = _hcp("triage", "--format", "json", *sorted((self.folder / "logs").glob(f"job-{self.id}*")))
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def wait_for(self, steps: int) -> None:
        def are_done() -> bool:
            return len(re.findall("elapsed time|Training Progress", self.train_logs())) >= steps

        what = f"{steps} training steps"
        self.slurm.wait_until(lambda: are_done() or self.slurm.field(self.id, "JobState") in _ENDS[1:], what)
        assert are_done(), f"the job ended before {what}: {self.log()[-1000:]}"

    def wait_for_phase(self) -> None:
        self.slurm.wait_until(lambda: (self.run / "health.txt").exists(), "the health checks")

    def verdicts(self) -> list[dict[str, Any]]:
        """The final ones of a job array's elements."""
        return [json.loads(path.read_text()) for path in sorted((self.folder / "logs").glob("*/verdict.json"))]


def run_fault(fault: Fault, cluster: Cluster, folder: Path) -> dict[str, Any]:
    job = FaultyJob(fault, cluster, folder)
    begun = time.monotonic()
    refusal = job.written(fault)
    row: dict[str, Any] = {"name": fault.name, "start": fault.start, "status": None, "code": None, "then": None}
    row |= {"first": None, "reason": refusal, "kept": 0, "left": 0, "excluded": "", "again": "", "disagree": []}
    if refusal:
        return {**row, "status": "refused", "disagree": [], "seconds": round(time.monotonic() - begun)}
    _submit(fault, cluster, job)
    if "--array-range" in job.options:
        cluster.wait_until(lambda: len(job.verdicts()) == 2, "the verdicts of both elements")
        found = job.verdicts()
        row["status"] = " ".join(sorted(verdict["status"] for verdict in found))
        row["code"] = min(verdict["exit_code"] for verdict in found)
        row["reason"] = "; ".join(verdict["reason"] for verdict in found)
    else:
        row |= _ended(fault, cluster, job)
    assert row["first"] != "ray-start", f"this machine is too slow for Ray, which gives its start 30 s: {row['reason']}"
    tracker = job.checkpoints / "latest_checkpointed_iteration.txt"
    row["kept"] = int(tracker.read_text()) if tracker.is_file() else 0
    row["left"] = _left(cluster, job)
    if fault.again and row["then"] == "requeue":
        cluster.hurry(job.id)
        cluster.finish(job.id)
        row["again"] = job.verdict()["status"]
    cluster.run("scancel", str(job.id), check=False)
    return {**row, "seconds": round(time.monotonic() - begun)}


def _submit(fault: Fault, cluster: Cluster, job: FaultyJob) -> None:
    path = f"{LAUNCHERS / 'bin'}{os.pathsep}{cluster.env['PATH']}"
    python = os.pathsep.join([cluster.env["PYTHONPATH"], str(LAUNCHERS)])
    if "--export=NONE" in fault.sbatch:
        text = job.script.read_text()  # as a user's profile would set it
        lines = f"export PATH={path}\nexport PYTHONPATH={python}\n"
        job.script.write_text(text.replace("set -euo pipefail\n", f"set -euo pipefail\n{lines}", 1))
    cluster.wait_until(lambda: cluster.run("sinfo", "-h", "-o", "%T %D").stdout.strip() == "idle 4", "4 idle nodes")
    job.submit(*fault.sbatch, env={"PATH": path, "PYTHONPATH": python})


def _ended(fault: Fault, cluster: Cluster, job: FaultyJob) -> dict[str, Any]:
    """What the first attempt came to."""
    if fault.act:
        job.wait_for(fault.steps) if fault.steps else job.wait_for_phase()
        ACTS[fault.act](job)
    state = ""

    def is_over() -> bool:
        nonlocal state
        state = cluster.field(job.id, "JobState")
        return state in _ENDS and (state != "PENDING" or cluster.field(job.id, "Restarts") != "0")

    cluster.wait_until(is_over, f"the end of {fault.name}")
    if state == "PENDING":
        cluster.wait_until(lambda: not _left(cluster, job), "its processes to be gone")
    else:
        time.sleep(2)
    script = f"/job{job.id:05d}/slurm_script"
    cluster.wait_until(lambda: not any(script in command for command in cluster.commands()), "the end of its script")
    verdict = job.verdict(0) if (job.run / "verdict-r0.json").exists() else {}
    verdict = verdict if verdict.get("final") else {}
    triage = job.triage()
    first = triage["first_failure"]
    left_out = cluster.field(job.id, "ExcNodeList").replace("(null)", "")
    return {
        "status": verdict.get("status"),
        "code": verdict.get("exit_code"),
        "then": "requeue" if state == "PENDING" else "none",
        "first": first and first["signature"],
        "reason": verdict.get("reason", ""),
        "excluded": ",".join(cluster.run("scontrol", "show", "hostnames", left_out).stdout.split()) if left_out else "",
        "disagree": disagreements(verdict, triage),
    }


def oddities(row: dict[str, Any], fault: Fault) -> list[str]:
    """What is not as wanted. Nothing but a status is wanted where the fault names none."""
    wanted = {"status": fault.status, "code": fault.code, "then": fault.then, "first": fault.first, "left": 0}
    wanted["again"] = fault.again or None
    wanted["excluded"] = "" if fault.excluded == "none" else fault.excluded
    row = {**row, "excluded": ",".join(sorted(filter(None, row["excluded"].split(","))))}
    odd = [
        f"{name}: wanted {value or 'none'}"
        for name, value in wanted.items()
        if row[name] != value and (value is not None or name == "status")
    ]
    odd += [f"kept: wanted {fault.kept}"] if row["kept"] < fault.kept else []
    odd += [f"reason: wanted {words!r}" for words in fault.says if words not in row["reason"]]
    return odd + [f"verdict and triage: {said}" for said in row["disagree"]]


def _left(cluster: Cluster, job: Job) -> int:
    """How many of the job's trainers are still running."""
    return sum(str(job.program) in command and "sbatch" not in command for command in cluster.commands())


def _hcp(
    *words: object, cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "megatron_hcp", *map(str, words)], cwd=cwd, env=env, capture_output=True, text=True
    )
