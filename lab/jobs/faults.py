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
import sys
import tempfile
import textwrap
from datetime import date
from pathlib import Path
from typing import Any

from jobs.faults_list import Fault, every_fault
from jobs.running import oddities, run_fault
from program import ROOT, parser_of

from megatron_hcp.ground.json_layout import ROW_WIDTH, laid_out
from support.slurm import Cluster

RESULTS = ROOT / "lab" / "results" / "faults.json"
TABLE = ROOT / "docs" / "job_faults.md"


def _table(rows: list[dict[str, Any]]) -> str:
    by_name = {(row["name"], row["start"]): row for row in rows}
    faults = every_fault()
    found = [(fault, by_name[fault.name, fault.start]) for fault in faults if (fault.name, fault.start) in by_name]
    odd = [oddities(row, fault) for fault, row in found]
    days = sorted(row["day"] for _, row in found)
    left = sum(row["left"] for _, row in found)
    said = (
        f"Measured with `python lab jobs/faults` on a real Slurm (four nodes on one machine, with control groups that "
        f"limit memory), {days[0]} to {days[-1]}. {len(found)} of its {len(faults)} faults were run, each in a job "
        f"with a checkpoint every two steps. {odd.count([])} behaved as expected, and {left} processes were "
        "left behind. *next* names the nodes that the next attempt leaves out, and how that ended, where it was "
        "waited for; *triage* the first failure that `hcp triage` names; *kept* the step of the last checkpoint. `-`: "
        "Slurm ended the script before it could write a verdict."
    )
    said += "".join(
        f" {fault.name}, {fault.start}: {'; '.join(texts)}."
        for (fault, _), texts in zip(found, odd, strict=True)
        if texts
    )
    lines = [
        "# What a rendered job does when something fails",
        "",
        textwrap.fill(said, 118),
        "",
        "<!-- begin: rendered by lab/jobs/faults.py -->",
        "| fault | start | verdict | code | next | triage | kept |",
        "|---|---|---|---|---|---|---|",
    ]
    starts: dict[tuple[str, ...], list[str]] = {}
    for fault, row in found:
        after = row["excluded"] and f" without {row['excluded']}", row["again"] and f", {row['again']}"
        cells = (
            row["status"] or "-",
            "-" if row["code"] is None else row["code"],
            "".join((row["then"] or "-", *after)),
            row["first"] or "no failure",
            row["kept"],
        )
        starts.setdefault((fault.name, *map(str, cells)), []).append(fault.start)
    for (name, *told), by in starts.items():
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in (name, ", ".join(by), *told)) + " |")
    return "\n".join((*lines, "<!-- end -->")) + "\n"


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
                    row = {**run_fault(fault, cluster, place), "day": str(date.today())}
                except AssertionError as error:
                    print(f"{fault.name}/{fault.start}: no result: {str(error)[:2000]}", flush=True)
                    cluster.run("scancel", "-u", "root", check=False)
                    continue
                rows[:] = [old for old in rows if (old["name"], old["start"]) != (row["name"], row["start"])] + [row]
                print(json.dumps(row), *oddities(row, fault), sep="\n    ", flush=True)
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
