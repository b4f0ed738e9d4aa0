"""What the path of a log says about it."""

import re
from pathlib import Path

import megatron_hcp.job
from megatron_hcp.resources import pack_dir
from megatron_hcp.triage.inputs.log_name import is_record, read_name, restarts_of

LOGS = ("comm.txt", "health.txt")
"""What programs print into files with a record's ending: a failure happens in them."""


def test_every_record_that_a_rendered_job_writes_is_known_by_its_name():
    text = "".join(path.read_text() for path in pack_dir("templates").glob("_*.j2"))
    names = {name.replace("$attempt", "1") for name in re.findall(r"\$run/([\w$-]+\.(?:json|txt))\b(?!\.)", text)}
    job = Path(megatron_hcp.job.__file__).parent
    for path in job.glob("*.py"):
        names |= set(re.findall(r"run / f?\"([\w.-]+\.(?:json|txt))\"", path.read_text()))
    names |= {"verdict-r1.json", "verdict-r1.preempted.json"}
    assert len(names) >= 8 and set(LOGS) < names
    assert {name for name in names if not is_record(f"runs/12/{name}")} == set(LOGS)


def test_what_the_tasks_of_a_job_tell_each_other_is_a_record():
    assert is_record("logs/job-7/.attempt-0/nodes/1") and not is_record("logs/job-7/attempt-0/nodes/1")


def test_what_srun_says_of_all_tasks_is_of_no_node():
    name = read_name("logs/job-7/launch-r1-srun.log")
    assert (name.node, name.attempt) == (None, 1)


POD = "pods/ml_job-worker-0_8f4c1c1e-1111-2222-3333-444455556666/pytorch"
"""As the kubelet names the logs of a pod."""


def test_a_pods_logs_name_it_and_which_of_its_containers_wrote_each():
    assert read_name(f"{POD}/0.log").node == read_name(f"{POD}/0.log.gz").node == "job-worker-0"
    assert restarts_of([f"{POD}/0.log", f"{POD}/1.log.gz", "other/pytorch/0.log"]) == {
        f"{POD}/0.log": 0,
        f"{POD}/1.log.gz": 1,
    }
    assert restarts_of([f"{POD}/0.log", "pod.previous.log"]) == {}, "one alone may be all that there is"
    assert restarts_of(["a-previous.log", "a.log"]) == {"a-previous.log": 0, "a.log": 1}


def test_the_log_of_a_job_arrays_task_names_it():
    assert read_name("logs/slurm-77_3.out").task == 3
    assert read_name("logs/train-77_12.err").task == 12
    for name in ("slurm-77.out", "rank_1_3.out", "run_2026_08.log"):
        assert read_name(name).task is None
