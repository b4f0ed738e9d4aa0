"""How the schedulers beside Slurm end a job, and what they say of one that ended well."""

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from support.logs import write_logs

OF_LSF = (
    "Sender: LSF System <lsf@m1>\nSubject: Job 8: <run> in cluster <c> {end}\n\n{said}\n\nResource usage summary:\n"
)
LOST = "BrokenPipeError: [Errno 32] Broken pipe\n"
RAISED = 'Traceback (most recent call last):\n  File "train.py", line 3, in main\n    go()\nValueError: no plan\n'
ENDED = {
    "LSF, by its owner": ("TERM_OWNER: job killed by owner.", "job-cancelled"),
    "LSF, by an administrator": ("TERM_FORCE_ADMIN: job killed by root or LSF administrator", "job-cancelled"),
    "LSF, preempted": ("TERM_PREEMPT: job killed after preemption.", "preempted"),
    "LSF, run limit": ("TERM_RUNLIMIT: job killed after reaching LSF run time limit.", "time-limit"),
    "LSF, CPU limit": ("TERM_CPULIMIT: job killed after reaching LSF CPU usage limit.", "time-limit"),
    "LSF, memory": ("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.", "host-memory"),
    "PBS, wall time": ("=>> PBS: job killed: walltime 3621 exceeded limit 3600", "time-limit"),
    "PBS, CPU time": ("=>> PBS: job killed: cput 7300 exceeded limit 7200", "time-limit"),
    "PBS, memory": ("=>> PBS: job killed: vmem 8388608kb exceeded limit 4194304kb", "host-memory"),
    "Grid Engine": ("job 31.1 exceeded hard wallclock time - initiate terminate method", "time-limit"),
    "HTCondor, removed": ("009 (12.000.000) 2026-08-22 10:00:00 Job was aborted.", "job-cancelled"),
    "HTCondor, evicted": ("004 (12.000.000) 2026-08-22 10:00:00 Job was evicted.", "preempted"),
}


@pytest.mark.parametrize("said, expected", ENDED.values(), ids=ENDED)
def test_a_schedulers_own_word_names_the_end_of_a_job(tmp_path, said, expected):
    log = "training on 8 ranks\nKeyboardInterrupt\n" + OF_LSF.format(end="Exited", said=said)
    failure = triage(write_logs(tmp_path, a_log=log), CpPlan()).failure
    assert failure is not None and failure.signature.id == expected


@pytest.mark.parametrize("said", ["Successfully completed.", "\t(1) Normal termination (return value 0)"])
def test_a_job_that_its_scheduler_saw_end_well_survived_the_pipes_of_its_helpers(tmp_path, said):
    end = OF_LSF.format(end="Done", said=said)
    diagnosis = triage(write_logs(tmp_path, a_log="the model has 8 epochs\n" + end), CpPlan())
    assert diagnosis.state == "no-failure", "no line of a step is needed"
    assert triage(write_logs(tmp_path, a_log="epochs: 8\n" + LOST + end), CpPlan()).state == "no-failure"
    assert triage(write_logs(tmp_path, a_log="epochs: 8\n" + RAISED + end), CpPlan()).state == "failed", "swallowed"
    other = triage(write_logs(tmp_path, a_log="epochs: 8\n" + end, a_err=RAISED), CpPlan())
    assert other.state == "failed", "the script went on after it"
    said_more = end.replace(said, f"{said} See above")
    assert triage(write_logs(tmp_path, a_log="epochs: 8\n" + LOST + said_more, a_err=""), CpPlan()).state == "failed"


def test_what_ended_a_thread_after_the_training_is_survived(tmp_path):
    steps = "".join(f"step {number} loss 2.5 lr 0.1\n" for number in range(5))
    done = steps + "Training finished\n"
    thread = "Exception in thread Uploader-2:\n"
    assert triage(write_logs(tmp_path, a_log=done + thread + RAISED), CpPlan()).state == "no-failure"
    assert triage(write_logs(tmp_path, a_log=done + RAISED), CpPlan()).state == "failed"
    assert triage(write_logs(tmp_path, a_log=steps + thread + RAISED), CpPlan()).state == "failed", "none was done"


def test_ray_names_the_node_whose_memory_was_full_below_the_exception(tmp_path):
    log = (
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
        "Memory on the node (IP: 192.168.0.107, ID: fc2b) where the task (pid=4331) was running was 59.49GB / 62.58GB\n"
    )
    failure = triage(write_logs(tmp_path, a_log=log), CpPlan()).failure
    assert failure and failure.node == "192.168.0.107"
