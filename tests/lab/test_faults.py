"""The table of faults is whole, what was recorded agrees with it, and the worst ten are run on a real Slurm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jobs.acts import ACTS
from jobs.agreement import disagreements
from jobs.faults_list import every_fault
from jobs.running import oddities, run_fault
from jobs.setups import BEFORE

FAULTS = {(fault.name, fault.start): fault for fault in every_fault()}
RECORDED = json.loads((Path(__file__).resolve().parents[2] / "lab" / "results" / "faults.json").read_text())
WORST = [
    "ends early, by its time/srun",
    "a checkpoint folder in a container/srun",
    "a working folder, and a relative checkpoint folder/srun",
    "a health check that hangs on a node/srun",
    "an array, one checkpoint folder/srun",
    "a rank uses more memory than the job may/srun",
    "the supervisor of a task is killed/srun",
    "suspended for ten seconds/srun",
    "the disk is full at the second save/srun",
    "a rank hangs while another writes lines/srun",
]
"""What lost work or misled before it was mended."""


def test_every_row_of_the_table_can_be_run() -> None:
    faults = every_fault()
    assert len(faults) == len(FAULTS) >= 106, "each has its own name"
    assert {fault.act for fault in faults} - {""} <= set(ACTS)
    assert {name for fault in faults for name in fault.before} <= set(BEFORE)


def test_every_row_was_recorded_as_wanted_and_verdict_and_triage_agree() -> None:
    assert {(row["name"], row["start"]) for row in RECORDED} == set(FAULTS)
    odd = {f"{row['name']}/{row['start']}": oddities(row, FAULTS[row["name"], row["start"]]) for row in RECORDED}
    assert {name: said for name, said in odd.items() if said} == {}


@pytest.mark.parametrize(
    ("status", "reason", "state", "rank", "agree"),
    [
        ("failed", "rank 3 on n2 exited with 137", "failed", 3, True),
        ("failed", "rank 1 on n1 exited with 134", "failed", 3, False),
        ("failed", "the launcher on n2 exited with 1", "failed", 3, True),
        ("preempted", "Slurm signalled", "failed", 3, False),
        ("completed", "iteration 8 of 8", "failed", None, False),
        ("completed", "iteration 8 of 8", "no-failure", None, True),
        ("stopped", "the nodes differ", "unclear", None, False),
    ],
)
def test_a_verdict_and_triage_that_differ_are_found(status, reason, state, rank, agree) -> None:
    first = None if rank is None else {"signature": "x", "rank": rank, "node": "n2"}
    said = disagreements({"status": status, "reason": reason}, {"state": state, "first_failure": first})
    assert (said == []) is agree, said


@pytest.mark.slurm
@pytest.mark.parametrize("name", WORST)
def test_the_worst_faults_end_as_they_should(slurm, tmp_path: Path, name: str) -> None:
    fault = FAULTS[tuple(name.rsplit("/", 1))]  # type: ignore[index]
    if fault.name.startswith("a rank uses more memory") and not slurm.has_cgroups:
        pytest.skip("this machine does not let Slurm limit memory")
    row = run_fault(fault, slurm, tmp_path)
    assert oddities(row, fault) == [], row
