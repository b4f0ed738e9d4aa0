"""The verdict on an attempt, from what its tasks and its logs left in the job's folder."""

import time

import pytest

from megatron_hcp.job.ends import end_note
from megatron_hcp.job.folder import JobFolder
from megatron_hcp.job.spec import JobSpec
from megatron_hcp.job.supervisor import JobPlace
from megatron_hcp.job.task import JobTask
from megatron_hcp.job.training import TrainingRun
from megatron_hcp.job.verdict import JobAttempt

RAYLET = "2026-11-27 15:54:48,622 ERR scripts.py:1186 -- raylet [exit code=-9]\n"
DRIVER = """(WorkerDict pid=4242, ip=10.0.0.2) [rank3]: Traceback (most recent call last):
(WorkerDict pid=4242, ip=10.0.0.2) [rank3]:   File "/app/x.py", line 3, in <module>
(WorkerDict pid=4242, ip=10.0.0.2) [rank3]: KeyError: 'reward'
"""


@pytest.mark.parametrize(
    ("end", "log", "text", "said"),
    [
        ((1, "n2", "ray"), "ray-r0-node1", RAYLET, "the launcher on n2 exited with 1 (Ray on n2 exited with 1: Ray's "),
        ((1, "n2", "ray"), "train-r0-node0", DRIVER, "the launcher on n2 exited with 1 (Ray on n2 exited with 1); "),
        ((0, "n1", "training"), "train-r0-node0", DRIVER, "the launcher on n1 exited with 1 (rank 3: "),
    ],
)
def test_with_ray_the_node_failed_whatever_rank_the_logs_name(tmp_path, end, log, text, said):
    """Its tasks are no ranks; and where Ray itself ended, only what Ray says of it is the cause."""
    number, node, what = end
    spec, task = JobSpec("ray", 2, 8), JobTask(0, 0, 0, "n1", 2, (0,), "7", 0)
    folder = JobFolder(tmp_path, 0)
    folder.make()
    folder.add_line("ends", number, end_note(number, node, 1, False, what))
    (tmp_path / f"{log}.log").write_text(text)
    training = TrainingRun(spec, task, folder)
    training.finish()
    attempt = JobAttempt(spec, task, folder, JobPlace(tmp_path, ("n1", "n2")), begun=time.monotonic())
    assert attempt.verdict(3, training.code, "", training=training).data["reason"].startswith(said)


LOST = """srun: error: Node failure on n2
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
slurmstepd-n1: error: *** STEP 901.0 ON n1 CANCELLED AT 2026-11-28T04:36:30 DUE TO NODE FAILURE, SEE SLURMCTLD LOG
srun: error: n1: task 0: Exited with exit code 1
"""
CANCELLED = "slurmstepd-n1: error: *** STEP 901.0 ON n1 CANCELLED AT 2026-11-28T04:36:30{} ***\n"


@pytest.mark.parametrize(
    ("log", "asked", "status", "if_slurm_restarted_it"),
    [
        (LOST, "terminated", "failed", "failed"),
        (CANCELLED.format(" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"), "terminated", "failed", "failed"),
        (CANCELLED.format(" DUE TO PREEMPTION"), "terminated", "terminated", "preempted"),
        (CANCELLED.format(" DUE TO JOB REQUEUE"), "terminated", "terminated", "preempted"),
        (CANCELLED.format(""), "terminated", "terminated", "preempted"),
        (LOST, "preempted", "preempted", "preempted"),
        (LOST, "", "completed", "preempted"),
        ("rank 0 says: srun: error: Node failure on n2\n", "terminated", "terminated", "preempted"),
    ],
)
def test_a_restart_by_slurm_is_a_preemption_only_where_no_node_failed(
    tmp_path, log, asked, status, if_slurm_restarted_it
):
    """The trainer saved after TERM and exited with 0; the last but one went on without the node (--no-kill)."""
    spec, task = JobSpec("srun", 2, 2, requeue=1), JobTask(0, 0, 0, "n1", 2, (0,), "7", 0)
    folder = JobFolder(tmp_path, 0)
    folder.make()
    for number, node in enumerate(("n1", "n2")):
        folder.add_line("ends", number, end_note(number, node, 0, False))
    (tmp_path / "launch-r0-srun.log").write_text(log)
    (tmp_path / "train-r0-node0.log").write_text("0:  iteration        8/       8 |\n")
    training = TrainingRun(spec, task, folder)
    training.finish()
    attempt = JobAttempt(spec, task, folder, JobPlace(tmp_path, ("n1", "n2")), begun=time.monotonic())
    found = attempt.verdict(3, 0, asked, training=training)
    assert (found.data["status"], found.if_preempted["status"]) == (status, if_slurm_restarted_it)
    assert ("ended by Slurm: node failure" in found.data["reason"]) == (status == "failed")


@pytest.mark.parametrize(("last", "saved", "following"), [(8, 8, "none"), (8, 6, "requeue"), (7, 6, "requeue")])
def test_a_training_that_fails_after_its_last_iteration_is_saved_has_nothing_left_to_do(
    tmp_path, last, saved, following
):
    spec, task = JobSpec("srun", 1, 1, requeue=2), JobTask(0, 0, 0, "n1", 1, (0,), "7", 0)
    folder = JobFolder(tmp_path, 0)
    folder.make()
    folder.add_line("ends", 0, end_note(0, "n1", 134, False))
    (tmp_path / "train-r0-node0.log").write_text(f"0: iteration {last:8d}/       8 | elapsed time\n")
    training = TrainingRun(spec, task, folder)
    training.finish()
    place = JobPlace(tmp_path, ("n1",), tmp_path / "ck")
    attempt = JobAttempt(spec, task, folder, place, begun=time.monotonic())
    (tmp_path / "ck").mkdir()
    (tmp_path / "ck" / "latest_checkpointed_iteration.txt").write_text(str(saved))
    found = attempt.verdict(3, training.code, "", training=training).data
    assert (found["status"], found["exit_code"], found["next"]) == ("failed", 134, following), found
