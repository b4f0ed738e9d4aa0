"""Makes jobs fail on a real Slurm cluster and records what each of them did: `python lab jobs/faults`.

Needs what the tests marked slurm and launchers need, cgroups and root. Every fault is one rendered job of a stand-in
trainer (lab/lib/jobs/faults.txt). A row passes if verdict, exit code, decision, triage's first failure, the kept step,
the next attempt, and what is left running are as wanted, and the verdict and triage agree. Rows go to
lab/results/faults.json, run by run (--only takes names, --part one of so many parts), and the table of all rows to the
skill (--write).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from jobs.acts import ACTS
from jobs.agreement import disagreements
from jobs.faults_list import Fault, every_fault
from jobs.setups import BEFORE
from program import ROOT, parser_of

from megatron_hcp.ground.json_layout import ROW_WIDTH, laid_out
from support.jobs import Job
from support.needs import LAUNCHERS
from support.slurm import Cluster

RESULTS = ROOT / "lab" / "results" / "faults.json"
TABLE = ROOT / "skills" / "slurm-multi-node-launch" / "references" / "faults.md"
LIGHT = ROOT / "lab" / "lib" / "jobs" / "light_trainer.py"
_ENDS = ("PENDING", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY")
_VERL = (
    "actor_rollout_ref.actor.strategy=megatron",
    "actor_rollout_ref.actor.megatron.context_parallel_size=2",
    "actor_rollout_ref.actor.use_dynamic_bsz=True",
)


class FaultyJob(Job):  # type: ignore[misc]
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
            sizes = {"trainer": self.trainer, "launch": fault.launch, "iters": fault.iters}
            done = self.try_render(fault.start, *self.options, **sizes)
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
        pattern = re.compile("elapsed time|Training Progress")
        self.slurm.wait_until(lambda: len(pattern.findall(self.train_logs())) >= steps, f"{steps} training steps")

    def wait_for_phase(self) -> None:
        self.slurm.wait_until(lambda: (self.run / "health.txt").exists(), "the health checks")

    def verdicts(self) -> list[dict[str, Any]]:
        """The final ones of a job array's elements."""
        return [json.loads(path.read_text()) for path in sorted((self.folder / "logs").glob("*/verdict.json"))]


def _run(fault: Fault, cluster: Cluster, folder: Path) -> dict[str, Any]:
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


def _odd(row: dict[str, Any], fault: Fault) -> list[str]:
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


def _table(rows: list[dict[str, Any]]) -> str:
    by_name = {(row["name"], row["start"]): row for row in rows}
    faults = every_fault()
    found = [(fault, by_name[fault.name, fault.start]) for fault in faults if (fault.name, fault.start) in by_name]
    odd = [_odd(row, fault) for fault, row in found]
    said = (
        f"Measured with `python lab jobs/faults` on a real Slurm (four nodes on one machine, with control groups that "
        f"limit memory), {date.today()}. {len(found)} of its {len(faults)} faults were run, each in a job with a "
        f"checkpoint every two steps. {odd.count([])} behaved as expected. *kept* is the step of the last checkpoint, "
        "*excluded* the nodes that the next attempt leaves out, *triage* the first failure that `hcp triage` names, "
        "*again* how the second attempt ended, where it was waited for. `-`: Slurm ended the script before it could "
        "write a verdict."
    )
    lines = [
        "# What a rendered job does when something fails",
        "",
        textwrap.fill(said, 118),
        "",
        "| fault | start | verdict | code | next | excluded | triage | kept | again | processes left | unexpected |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (fault, row), texts in zip(found, odd, strict=True):
        cells: Sequence[object] = (
            fault.name,
            fault.start,
            row["status"] or "-",
            "-" if row["code"] is None else row["code"],
            row["then"] or "-",
            row["excluded"] or "-",
            row["first"] or "no failure",
            row["kept"],
            row["again"] or "-",
            row["left"],
            "; ".join(texts),
        )
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _run_all(faults: list[Fault], rows: list[dict[str, Any]], first_job: int) -> None:
    """Runs them one after the other on a cluster of their own; each row is saved as soon as it exists."""
    folder = Path(tempfile.mkdtemp(prefix="hcp-slurm-"))
    folder.chmod(0o755)
    (folder / "owner").write_text(str(os.getpid()))
    cluster = Cluster(folder, first_job, kill_wait_s=30)  # as Slurm has it by default
    cluster.env["PYTHONPATH"] = str(ROOT / "src")
    cluster.env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with tempfile.TemporaryDirectory(prefix="hcp-faults-") as jobs:
        try:
            cluster.start()
            for number, fault in enumerate(faults):
                place = Path(jobs) / str(number)
                place.mkdir()
                try:
                    row = _run(fault, cluster, place)
                except AssertionError as error:
                    print(f"{fault.name}/{fault.start}: no result: {str(error)[:2000]}", flush=True)
                    cluster.run("scancel", "-u", "root", check=False)
                    continue
                rows[:] = [old for old in rows if (old["name"], old["start"]) != (row["name"], row["start"])] + [row]
                print(json.dumps(row), *_odd(row, fault), sep="\n    ", flush=True)
                RESULTS.write_text(laid_out(rows, ROW_WIDTH) + "\n", encoding="utf-8")
        finally:
            cluster.stop()


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--only", nargs="+", default=[], help="faults, by words of `NAME/START`")
    parser.add_argument("--part", default="1/1", metavar="N/OF", help="only this part of them, by turns")
    parser.add_argument("--write", action="store_true", help="write the table of all rows so far, after the runs")
    parser.add_argument("--table", action="store_true", help="write that table without running anything")
    options = parser.parse_args()
    rows = json.loads(RESULTS.read_text()) if RESULTS.is_file() else []
    if not options.table:
        names = options.only or [""]
        found = [each for each in every_fault() if any(name in f"{each.name}/{each.start}" for name in names)]
        number, of = map(int, options.part.split("/"))
        _run_all(found[number - 1 :: of], rows, 301 + 200 * number)
    if options.write or options.table:
        TABLE.write_text(_table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
