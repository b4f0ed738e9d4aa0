"""Jobs that are preempted or fail on a real Slurm: they go on where they were, within the limit, and lose nothing."""

import re

import pytest

from support.jobs import total_after

pytestmark = [pytest.mark.slurm, pytest.mark.torch]


@pytest.mark.parametrize("start", ["srun", "torchrun"])
def test_a_preempted_job_goes_on_and_loses_nothing(job, start):
    job.render(start, "--requeue", "1", trainer=["--wait-at", "5"], iters=30)
    job.submit()
    job.wait_for_steps(5)
    # What Slurm does so many seconds before the end, or on preemption.
    job.slurm.run("scancel", "--signal=USR1", "--batch", str(job.id))
    first = job.final_verdict(0)
    assert (first["status"], first["next"]) == ("preempted", "requeue"), job.log()
    assert job.final_sum()["step"] == 5
    job.slurm.wait_for_state(job.id, "PENDING")
    job.slurm.hurry(job.id)
    assert job.finish() == "COMPLETED", job.log() + job.train_logs()
    assert job.verdict()["attempt"] == 1 and job.verdict()["status"] == "completed"
    assert job.final_sum() == total_after(30, 4)
    steps = [int(n) for n in re.findall(r"iteration\s+(\d+)/", job.train_logs())]
    assert steps == list(range(1, 31)), "each step once: none lost, none repeated"


@pytest.mark.parametrize("start", ["srun", "torchrun"])
def test_a_job_that_slurm_itself_preempts_saves_and_goes_on(job, start):
    """Slurm sends TERM to the tasks alone: the trainer saves and ends with 0, and the script is told nothing."""
    job.render(start, "--requeue", "1", trainer=["--wait-at", "5"], iters=10)
    job.submit()
    job.wait_for_steps(5)
    job.slurm.preempt(job.id)
    first = job.final_verdict(0)
    assert (first["status"], first["next"], first["exit_code"]) == ("preempted", "requeue", 0), job.log()
    assert job.final_sum()["step"] == 5
    job.slurm.wait_for_state(job.id, "PENDING")
    job.slurm.hurry(job.id)
    assert job.finish() == "COMPLETED", job.log() + job.train_logs()
    assert job.verdict()["status"] == "completed" and job.final_sum() == total_after(10, 4)
    steps = [int(n) for n in re.findall(r"iteration\s+(\d+)/", job.train_logs())]
    assert steps == list(range(1, 11)), "each step once: none lost, none repeated"


def test_a_job_that_is_preempted_before_it_trains_starts_again(job):
    job.render("srun", "--requeue", "1", "--comm-test")
    job.submit()
    log = job.folder / "logs" / f"job-{job.id}.out"
    job.slurm.wait_until(lambda: log.exists() and '"phase": 2' in log.read_text(), "phase 2")
    job.slurm.run("scancel", "--signal=USR1", "--batch", str(job.id))
    first = job.final_verdict(0)
    assert (first["status"], first["phase"], first["next"]) == ("preempted", 2, "requeue")
    job.slurm.wait_for_state(job.id, "PENDING")
    job.slurm.hurry(job.id)
    assert job.finish() == "COMPLETED", job.log()
    assert job.final_sum() == total_after(6, 4)


def test_the_requeue_limit_holds(job):
    job.render("srun", "--requeue", "1", trainer=["--step-seconds", "0.2"], iters=500)
    job.submit()
    for attempt in (0, 1):
        log = job.run / f"train-r{attempt}-node1.log"
        job.slurm.wait_until(lambda log=log: log.exists() and "elapsed time" in log.read_text(), "a step")
        job.slurm.run("scancel", "--signal=USR1", "--batch", str(job.id))
        job.final_verdict(attempt)
        if attempt == 0:
            job.slurm.wait_for_state(job.id, "PENDING")
            job.slurm.hurry(job.id)
    assert (job.verdict(0)["next"], job.verdict(1)["next"]) == ("requeue", "none")
    assert job.finish() == "FAILED", "it saved and ended well, but it is not done"
    assert job.slurm.field(job.id, "Restarts") == "1"
    # Slurm may requeue a job of its own accord: then the job itself refuses.
    job.slurm.run("scontrol", "requeue", str(job.id), check=False)
    job.slurm.hurry(job.id)
    third = job.final_verdict(2)
    assert (third["status"], third["phase"], third["next"]) == ("stopped", 0, "none")


def test_a_failure_without_progress_is_not_repeated(job):
    job.render("srun", "--requeue", "5", trainer=["--fail-rank", "0", "--fail-step", "0"])
    job.submit()
    assert job.finish() == "FAILED"
    assert job.verdict()["next"] == "none" and "no checkpoint was written" in job.verdict()["reason"]


def test_a_failure_after_progress_is_tried_again(job):
    once = job.folder / "failed-once"
    job.render("srun", "--requeue", "5", trainer=["--fail-rank", "0", "--fail-step", "4", "--fail-once", once])
    job.submit()
    job.slurm.wait_until(lambda: job.slurm.field(job.id, "Restarts") == "1", "the requeue")
    job.slurm.wait_for_state(job.id, "PENDING")
    job.slurm.hurry(job.id)
    assert job.finish() == "COMPLETED", job.log()
    assert job.verdict(0)["status"] == "failed" and job.verdict()["attempt"] == 1
    assert job.final_sum() == total_after(6, 4)
    assert job.triage()["first_failure"] is None, "the first attempt's failure is no failure of this one"


UNVALIDATED = """\
import os, sys
if os.environ.get("SLURM_RESTART_COUNT", "0") == "0":
    if os.environ["RANK"] == "3":
        print("Rank 3, node h, device 1, iteration #7: Possible transient error!!", flush=True)
    sys.exit(17)
"""


def test_a_node_whose_result_failed_its_validation_is_left_out_of_the_next_attempt(job):
    job.program = job.folder / "trainer.py"
    job.program.write_text(UNVALIDATED)
    job.render("srun", "--requeue", "1")
    job.submit()
    first = job.final_verdict(0)
    assert (first["status"], first["exit_code"], first["next"]) == ("failed", 17, "requeue"), job.log()
    suspect = first["nodes"][1]
    assert first["exclude"] == [suspect]
    job.slurm.wait_for_state(job.id, "PENDING")
    job.slurm.wait_until(lambda: job.slurm.field(job.id, "ExcNodeList") == suspect, "the node to be left out")
    job.slurm.hurry(job.id)
    assert job.finish() == "COMPLETED", job.log()
    assert suspect not in job.verdict()["nodes"]
