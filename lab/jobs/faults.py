"""Makes jobs fail on a real Slurm cluster and records what each of them did: `python lab jobs/faults`.

Needs what the tests marked slurm and launchers need. Every fault is one rendered job of the stand-in trainer. A row
passes if verdict, exit code, decision, triage's first failure, the kept step and what is left running are as expected.
Rows go to lab/results/faults.json, run by run (--only takes names), and the table of all rows to the skill (--write).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from datetime import date
from pathlib import Path
from typing import Any

from jobs.faults_list import Fault, every_fault
from program import ROOT, parser_of

from megatron_hcp.ground.json_layout import ROW_WIDTH, laid_out
from support.jobs import Job
from support.needs import LAUNCHERS
from support.slurm import Cluster

RESULTS = ROOT / "lab" / "results" / "faults.json"
TABLE = ROOT / "skills" / "slurm-multi-node-launch" / "references" / "faults.md"


def _run(fault: Fault, cluster: Cluster, folder: Path) -> dict[str, Any]:
    job = Job(cluster, _hcp, ROOT, folder)
    fault.before(job)
    job.render(fault.start, *fault.options, trainer=fault.trainer, launch=fault.launch, iters=fault.iters)
    edit = getattr(job, "edit", None)
    if edit is not None:
        edit()
    path = f"{LAUNCHERS / 'bin'}{os.pathsep}{cluster.env['PATH']}"
    python = os.pathsep.join([cluster.env["PYTHONPATH"], str(LAUNCHERS)])
    environment = {"PATH": path, "PYTHONPATH": python}
    if "--export=NONE" in fault.sbatch:
        text = job.script.read_text()  # as a user's profile would set it
        lines = f"export PATH={path}\nexport PYTHONPATH={python}\n"
        job.script.write_text(text.replace("set -euo pipefail\n", f"set -euo pipefail\n{lines}", 1))
    cluster.wait_until(lambda: cluster.run("sinfo", "-h", "-o", "%T %D").stdout.strip() == "idle 4", "4 idle nodes")
    begun = time.monotonic()
    job.submit(*fault.sbatch, env=environment)
    if fault.steps:
        job.wait_for_steps(fault.steps)
    fault.act(job)
    ends = ("PENDING", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED")
    state = ""

    def is_over() -> bool:
        nonlocal state
        state = cluster.field(job.id, "JobState")
        return state in ends and (state != "PENDING" or cluster.field(job.id, "Restarts") != "0")

    cluster.wait_until(is_over, f"the end of {fault.name}")
    if state == "PENDING":
        cluster.wait_until(lambda: not _left(cluster, job), "its processes to be gone")
    else:
        time.sleep(2)
    script = f"/job{job.id:05d}/slurm_script"
    cluster.wait_until(lambda: not any(script in command for command in cluster.commands()), "the end of its script")
    verdict = job.verdict(0) if (job.run / "verdict-r0.json").exists() else {}
    is_final = verdict.get("final", False)
    tracker = job.checkpoints / "latest_checkpointed_iteration.txt"
    first = job.triage()["first_failure"]
    excluded = cluster.field(job.id, "ExcNodeList").replace("(null)", "")
    row = {
        "name": fault.name,
        "start": fault.start,
        "status": verdict.get("status") if is_final else None,
        "code": verdict.get("exit_code") if is_final else None,
        "then": "requeue" if state == "PENDING" else "none",
        "first": first and first["signature"],
        "reason": verdict.get("reason", ""),
        "kept": int(tracker.read_text()) if tracker.is_file() else 0,
        "left": _left(cluster, job),
        "excluded": excluded,
        "nodes": verdict.get("nodes", []),
        "seconds": round(time.monotonic() - begun),
    }
    cluster.run("scancel", str(job.id), check=False)
    return row


def _odd(row: dict[str, Any], fault: Fault) -> list[str]:
    """What is not as wanted. No code, first failure or step is wanted where the fault names none."""
    wanted = {"status": fault.status, "code": fault.code, "then": fault.then, "first": fault.first, "left": 0}
    odd = [
        f"{name}: wanted {value}"
        for name, value in wanted.items()
        if row[name] != value and (value is not None or name == "status")
    ]
    if row["kept"] < fault.kept:
        odd.append(f"kept: wanted {fault.kept}")
    excluded = row["nodes"][-1:] if fault.excluded else []
    if fault.excluded is not None and list(filter(None, [row["excluded"]])) != excluded:
        odd.append(f"left out: wanted {', '.join(excluded) or 'no node'}")
    return odd


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
    faults = {(fault.name, fault.start): fault for fault in every_fault()}
    rows = [row for row in rows if (row["name"], row["start"]) in faults]
    odd = [_odd(row, faults[row["name"], row["start"]]) for row in rows]
    said = (
        f"Measured with `python lab jobs/faults` on a real Slurm (four nodes on one machine), {date.today()}. "
        f"{len(rows)} of its {len(faults)} faults were run, each in a job with `--requeue 1`, a checkpoint every two "
        f"steps, and the stand-in trainer. {odd.count([])} behaved as expected. *kept* is the step of the last "
        "checkpoint, *excluded* the node that the next attempt leaves out, *triage* the first failure that "
        "`hcp triage` names. `-`: Slurm ended the script before it could write a verdict."
    )
    lines = [
        "# What a rendered job does when something fails",
        "",
        textwrap.fill(said, 118),
        "",
        "| fault | start | verdict | code | next | excluded | triage | kept | processes left | unexpected |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row, texts in zip(rows, odd, strict=True):
        code, first = "-" if row["code"] is None else row["code"], row["first"] or "no failure"
        cells = [
            row["name"],
            row["start"],
            row["status"] or "-",
            code,
            row["then"],
            row["excluded"] or "-",
            first,
            row["kept"],
            row["left"],
        ]
        lines.append("| " + " | ".join(map(str, (*cells, "; ".join(texts)))) + " |")
    return "\n".join(lines) + "\n"


def _run_all(faults: list[Fault], rows: list[dict[str, Any]]) -> None:
    """Runs them one after the other on a cluster of their own; each row is saved as soon as it exists."""
    folder = Path(tempfile.mkdtemp(prefix="hcp-slurm-"))
    folder.chmod(0o755)
    (folder / "owner").write_text(str(os.getpid()))
    cluster = Cluster(folder, first_job=501)
    cluster.env["PYTHONPATH"] = str(ROOT / "src")
    cluster.env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with tempfile.TemporaryDirectory(prefix="hcp-faults-") as jobs:
        try:
            cluster.start()
            for number, fault in enumerate(faults):
                place = Path(jobs) / str(number)
                place.mkdir()
                row = _run(fault, cluster, place)
                rows[:] = [old for old in rows if (old["name"], old["start"]) != (row["name"], row["start"])] + [row]
                print(json.dumps(row), flush=True)
                RESULTS.write_text(laid_out(rows, ROW_WIDTH) + "\n", encoding="utf-8")
        finally:
            cluster.stop()


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--only", nargs="+", default=[], help="faults, by words of `NAME/START`")
    parser.add_argument("--write", action="store_true", help="write the table of all rows so far, after the runs")
    parser.add_argument("--table", action="store_true", help="write that table without running anything")
    options = parser.parse_args()
    rows = json.loads(RESULTS.read_text()) if RESULTS.is_file() else []
    if not options.table:
        names = options.only or [""]
        _run_all([each for each in every_fault() if any(name in f"{each.name}/{each.start}" for name in names)], rows)
    if options.write or options.table:
        TABLE.write_text(_table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
