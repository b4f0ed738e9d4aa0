"""Several runs in one file, and what says that nothing was started."""

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage

START = "FutureWarning: Importing from the old place is deprecated\nINFO: a model of 12 layers is built\n"
RAISED = 'Traceback (most recent call last):\n  File "run.py", line {}, in <module>\n    main()\n{}\n'


def test_the_log_of_one_rank_may_hold_several_runs_and_the_last_one_counts(tmp_path):
    errors = ["AssertionError: no such config", "ValueError: too few heads", "KeyError: 'layout'"]
    for rank in (0, 1):
        text = "".join(START + RAISED.format(7, error) for error in errors)
        (tmp_path / f"workerlog.{rank}").write_text(text)
    found = triage(sorted(tmp_path.iterdir()), CpPlan())
    assert found.failure and found.failure.message == errors[-1]
    assert [attempt.failure and attempt.failure.message for attempt in found.attempts] == errors


def test_what_a_rank_says_below_its_exception_is_of_the_same_run_unless_it_begins_again(tmp_path):
    log = tmp_path / "rank0.log"
    log.write_text(START + RAISED.format(7, "ValueError: first") + "closing\n" + RAISED.format(9, "KeyError: 'then'"))
    found = triage([log], CpPlan())
    assert found.failure and found.failure.message == "ValueError: first"


def test_what_a_rank_tries_again_is_no_further_run(tmp_path):
    """A log's first lines are its program's start; those after it may come again at each trial."""
    log = tmp_path / "rank0.log"
    trial = "INFO: uploads the metrics of this step\n" + RAISED.format(3, "OSError: the tracker is gone")
    steps = "".join(f"step {step} loss 2.5\n" for step in range(1, 6))
    log.write_text(START + trial + trial + steps)
    found = triage([log], CpPlan())
    assert found.failure is None
    assert len(found.attempts) == 1


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            [
                "srun: error: If munged is up, restart with --num-threads=10",
                "srun: error: Munge encode failed: Failed to access the socket",
            ],
            "Munge encode failed: Failed to access the socket",
        ),
        (
            ["sbatch: error: fetch_config: DNS SRV lookup failed", "sbatch: fatal: Could not establish"],
            "fetch_config: DNS",
        ),
    ],
)
def test_a_client_of_slurm_that_has_the_last_word_started_nothing(tmp_path, lines, said):
    log = tmp_path / "job.log"
    log.write_text("\n".join(lines) + "\n")
    found = triage([log], CpPlan())
    assert found.failure and found.advice
    assert found.failure.message.startswith(said)
    assert (found.state, found.advice.action) == ("failed", "stop")
    log.write_text("\n".join([*lines, "step 1 loss 2.5", "step 2 loss 2.4"]) + "\n")
    assert triage([log], CpPlan()).state != "failed"


def test_a_watchdog_is_believed_before_the_line_that_announces_it(tmp_path):
    log = tmp_path / "job.log"
    log.write_text(
        "[rank0]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 0] Heartbeat monitor timed out!\n"
        "[rank0]:[F ProcessGroupNCCL.cpp:1169] [PG 0 Rank 0] ProcessGroupNCCL's watchdog got stuck for 600 seconds "
        "without making progress in monitoring enqueued collectives.\n"
    )
    found = triage([log], CpPlan())
    assert found.failure and found.failure.signature.id == "watchdog-stuck"


def test_a_worker_of_ray_is_placed_by_the_list_of_its_properties(tmp_path):
    log = tmp_path / "job.log"
    log.write_text(
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
        "        class_name: WorkerDict\n        pid: 85317\n        ip: 172.24.0.4\n"
        "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR\n"
    )
    found = triage([log], CpPlan())
    assert found.failure and (found.failure.node, found.failure.pid) == ("172.24.0.4", 85317)


def test_a_run_that_fails_otherwise_than_the_one_before_is_judged_by_itself(tmp_path):
    log = tmp_path / "rank0.log"
    steps = "".join(f"step {step} loss 2.5\n" for step in range(1, 6))
    log.write_text(
        START + RAISED.format(7, "ValueError: too few heads") + START + steps + RAISED.format(9, "KeyError: 'rows'")
    )
    found = triage([log], CpPlan())
    assert found.failure and found.advice
    assert found.failure.message == "KeyError: 'rows'"
    assert found.advice.action == "stop"


@pytest.mark.parametrize(("steps", "hung"), [("", True), ("step 1 loss 2.5\nstep 2 loss 2.4\n", False)])
def test_a_time_limit_before_the_first_step_may_be_a_hang(tmp_path, steps, hung):
    log = tmp_path / "job.log"
    log.write_text(
        f"Starting the job\n{steps}slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT T DUE TO TIME LIMIT ***\n"
    )
    advice = triage([log], CpPlan()).advice
    assert advice
    assert ("hung" in advice.reason) is hung


def test_the_node_may_stand_in_the_other_file_of_the_job(tmp_path):
    out, err = tmp_path / "job.out", tmp_path / "job.err"
    err.write_text(RAISED.format(7, "ValueError: no accelerator"))
    nodes = []
    for head in ("Node: fc10713 | Job: 36164743\n", "Nodelist: fc[10713-10714]\n", "Node: fc1\nNode: fc2\n"):
        out.write_text(head)
        found = triage([err, out], CpPlan())
        nodes.append(found.failure.node if found.failure else "")
    assert nodes == ["fc10713", None, None]


def test_logs_that_name_no_rank_are_counted(tmp_path):
    paths = [tmp_path / f"pod-{letter}.log" for letter in "abc"]
    for port, path in enumerate(paths):
        path.write_text(RAISED.format(7, f"OSError: port {port} is refused") if port else "started\n")
    found = triage(paths, CpPlan())
    assert found.failure
    assert found.failure.cause.endswith("2 of 2 logs say so")


def test_the_text_of_an_exception_may_stand_below_its_name(tmp_path):
    log = tmp_path / "job.log"
    log.write_text(RAISED.format(7, "lightning.MisconfigurationException: \n      You requested GPUs: [0, 1]"))
    found = triage([log], CpPlan())
    assert found.failure
    assert found.failure.cause.endswith(": You requested GPUs: [0, 1]")
    log.write_text(RAISED.format(7, "AssertionError"))
    found = triage([log], CpPlan())
    assert found.failure
    assert "AssertionError without a text" in found.failure.cause


def test_a_collector_may_take_the_indents_of_a_traceback(tmp_path):
    log = tmp_path / "pod.log"
    lines = [
        "Traceback (most recent call last):",
        'File "a.py", line 7, in run',
        "take(queue)",
        "^^^^~~",
        "_queue.Empty",
    ]
    log.write_text("".join(f"2025-07-17T11:20:40.299361236+08:00 [rank2]: {line}\n" for line in lines))
    failure = triage([log], CpPlan()).failure
    assert failure
    assert (failure.message, failure.rank) == ("_queue.Empty", 2)
