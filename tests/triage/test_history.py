"""All files of a job are one history: the shell's preamble, its steps, its ranks, and what trained on."""

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from megatron_hcp.triage.report import diagnosis_json
from megatron_hcp.triage.screen_text import diagnosis_text
from support.logs import STEP, write_logs

WANDB = (
    'Traceback (most recent call last):\n  File "/usr/bin/wandb", line 5, in <module>\n'
    "    from wandb.cli.cli import cli\nModuleNotFoundError: No module named 'dataclasses'\n"
)
"""A Slurm script's own `wandb login` under the system's Python, above what srun starts."""
SHELL = "/var/spool/slurmd/job9/slurm_script: line 366: python: command not found\n"
MISMATCH = (
    "{0}: [rank{0}]: AssertionError: OptimizerParamScheduler: class input value 1e-05 and checkpoint value 2e-05 for "
    "minimum learning rate do not match\n"
)
ENDED = "srun: error: n1: task 0: Exited with exit code 1\nsrun: Terminating StepId=9.{}\n"


def _read(tmp_path, **files):
    return triage(write_logs(tmp_path, **files), CpPlan())


def _steps(first=0):
    return "".join(STEP.format(s=s, speed=400.0) for s in range(first, first + 5))


def test_what_the_shell_said_before_ranks_wrote_is_not_what_ended_them(tmp_path):
    diagnosis = _read(tmp_path, job_err=WANDB + "".join(map(MISMATCH.format, range(4))) + ENDED.format(0))
    assert "OptimizerParamScheduler" in diagnosis.failure.message
    assert diagnosis.failure.ranks == (0, 1, 2, 3) and "and 3 more ranks" in diagnosis_text(diagnosis, None)
    assert diagnosis.survived == 1
    alone = _read(tmp_path, other_err=WANDB)
    assert alone.failure.signature.id == "module-missing", "without ranks below it, it is what ended the job"


def test_a_ranks_own_line_above_the_first_label_is_not_the_shells(tmp_path):
    own = "[rank3]: RuntimeError: could not open the tokenizer\n"
    later = "0: [rank0]: RuntimeError: [x/pair.cc:553] Connection closed by peer [127.0.0.1]:3456\n"
    assert _read(tmp_path, job_err=own + later).failure.rank == 3


def test_torchs_tag_on_some_lines_of_a_rank_does_not_end_the_preamble(tmp_path):
    """Python's traceback has no tag where torchrun adds none, and torch's C++ writes one behind it."""
    log = (
        "ValueError: no such dataset\n[rank0]:[W822 10:00:00 x.cpp:1] Warning: destroy_process_group() was not called\n"
    )
    assert _read(tmp_path, job_log=log).failure.message == "ValueError: no such dataset"


@pytest.mark.parametrize("said", [SHELL, WANDB])
def test_a_job_whose_stderr_has_a_file_of_its_own_trained_all_the_same(tmp_path, said):
    diagnosis = _read(tmp_path, h_err=said + " 0: import pynvml\n", h_out=_steps())
    assert (diagnosis.state, diagnosis.failure, diagnosis.survived) == ("running", None, 1)


def test_where_only_the_shell_failed_and_ranks_started_the_end_is_not_in_the_files(tmp_path):
    diagnosis = _read(tmp_path, h_err=SHELL + " 0: import pynvml\n")
    assert (diagnosis.state, diagnosis.unclear) == ("unclear", "no-end")
    text = diagnosis_text(diagnosis, None)
    assert "only the shell failed" in text and ".out" in text


def test_the_first_step_that_failed_counts_and_the_later_ones_are_told(tmp_path):
    first = "0: [rank1]: AssertionError: Inference must always gather TP logits\n" + ENDED.format(0)
    second = "0: ModuleNotFoundError: No module named 'src'\n" + ENDED.format(1)
    diagnosis = _read(tmp_path, job_err=first + second)
    assert "gather TP logits" in diagnosis.failure.message and diagnosis.failure.step == "9.0"
    (later,) = diagnosis.later
    assert (later.step, later.line) == ("9.1", 4)
    assert "srun step 9.1 failed too" in diagnosis_text(diagnosis, None)
    assert diagnosis_json(diagnosis, None)["later_steps"][0]["message"].endswith("No module named 'src'")


def test_a_step_that_failed_before_one_that_trained_did_not_end_the_job(tmp_path):
    first = "0: [rank1]: AssertionError: the check of the nodes failed\n" + ENDED.format(0)
    assert _read(tmp_path, job_err=first + _steps()).state == "running"
    assert _read(tmp_path, job_err=first + _steps().splitlines(keepends=True)[0]).state == "failed"


def test_ranks_that_slurm_kills_because_it_ends_their_step_did_not_die_first(tmp_path):
    log = (
        '0: [rank0]: Traceback (most recent call last):\n0: [rank0]:   File "a.py", line 1, in f\n'
        "0: [rank0]:     raise StopIteration\n0: [rank0]: StopIteration\n"
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\nsrun: Terminating StepId=9.0\n"
        "3: terminate called without an active exception\nsrun: error: n1: tasks 4,6: Killed\n"
    )
    assert _read(tmp_path, job_err=log).failure.message == "StopIteration"


def test_what_the_clock_shows_that_another_file_trained_on_after_is_no_failure(tmp_path):
    error = "2026-08-22 10:0{}:00 ERROR RuntimeError: could not send the metrics\n"
    raised = "2026-08-22 10:0{}:00 ValueError: no\n"
    steps = "".join(STEP.format(s=s, speed=400.0).replace("10:00:", "10:09:") for s in range(5))
    assert _read(tmp_path, a_err=raised.format(1), a_out=steps).failure is None
    assert _read(tmp_path, b_err=raised.format(9), b_out=steps).failure.signature.id == "exception"
    assert _read(tmp_path, c_err=error.format(1) + "Exception: no\n", c_out=steps).failure is not None, (
        "a line without a time of its own may be of any"
    )


def test_time_decides_before_the_kind_of_a_line(tmp_path):
    """A row that knows its line says no more about when it was written than one that does not."""
    first = "3: [rank3]: ValueError: the shard 7 has no tokens\n"
    waiting = "0: INFO: waiting\n" * 200
    known = "0: [rank0]: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    assert _read(tmp_path, a_log=first + waiting + known).failure.rank == 3
    assert _read(tmp_path, b_log=first + known).failure.signature.id == "gpu-memory", "said at once: the kind decides"


def test_a_timeout_is_the_cause_of_what_ranks_raise_after_it(tmp_path):
    """A broadcast timed out, and ranks used what they had not received."""
    timeout = (
        "3: [rank3]:[E521 13:22:10.386 x.cpp:694] [Rank 3] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=7, OpType=BROADCAST, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n"
    )
    raised = "5: [rank5]: RuntimeError: Storage size calculation overflowed with sizes=[1]\n"
    between = "0: INFO: waiting\n" * 200
    assert _read(tmp_path, a_log=timeout + between + raised).failure.signature.id == "collective-timeout"
    assert _read(tmp_path, b_log=raised + between + timeout).failure.rank == 5


def test_a_line_after_which_an_attempt_trained_is_no_news_in_the_next(tmp_path):
    error = "[rank3]: RuntimeError: could not send metrics\n"
    begin = "Setting OMP_NUM_THREADS environment variable for each process to be 1\n"
    diagnosis = _read(tmp_path, a_log=begin + error + _steps() + begin + error + "[rank1]: ValueError: no\n")
    assert diagnosis.failure.message == "ValueError: no"


WAITED = (
    "[rank{0}]:[E822 10:30:00.1 x.cpp:6] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, "
    "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600004 milliseconds before timing out.\n"
)


def test_an_exception_in_a_log_without_times_came_before_those_who_waited_for_that_rank(tmp_path):
    log = "[rank1]: ValueError: no such dataset\n"
    diagnosis = _read(tmp_path, rank_0_log=WAITED.format(0), rank_1_log=log, rank_2_log=WAITED.format(2))
    assert (diagnosis.failure.message, diagnosis.failure.rank) == ("ValueError: no such dataset", 1)
    later = "2026-08-22 10:40:00 " + log
    diagnosis = _read(tmp_path, rank_0_log=WAITED.format(0), rank_1_log=later, rank_2_log=WAITED.format(2))
    assert diagnosis.failure.signature.id == "collective-timeout", "where times are stated, they decide"


POD = "[pod/job-worker-{}-x/pytorch] 2026-08-22T10:00:0{}.1Z {}\n"


def test_lines_of_several_pods_are_told_apart(tmp_path):
    own = (
        "Traceback (most recent call last):",
        '  File "/w/train.py", line 7, in step',
        "    load()",
        "KeyError: 'lr'",
    )
    log = "".join(
        POD.format(1, place, line) + POD.format(0, place, "fetched a batch") for place, line in enumerate(own)
    )
    failure = _read(tmp_path, pods_log=log).failure
    assert (failure.node, failure.message) == ("job-worker-1-x", "KeyError: 'lr'")
    assert failure.cause.endswith("(train.py:7, in step: load())")


def test_a_container_that_was_started_again_is_another_attempt(tmp_path):
    broken = "[rank0]: RuntimeError: CUDA error: an illegal memory access was encountered\n"
    logs = {"pod.previous.log": broken, "pod.log": _steps()}
    for name, text in logs.items():
        (tmp_path / name).write_text(text)
    diagnosis = triage([tmp_path / name for name in logs], CpPlan())
    assert diagnosis.state == "running"
    assert [attempt.failure and attempt.failure.rank for attempt in diagnosis.attempts] == [0, None]


def test_a_job_arrays_task_does_not_survive_because_another_trains_on(tmp_path):
    (tmp_path / "slurm-77_3.out").write_text("2026-08-22 09:00:00 ValueError: no such learning rate\n")
    (tmp_path / "slurm-77_4.out").write_text("".join(f"2026-08-22 {line}" for line in TIMED))
    found = triage(sorted(tmp_path.iterdir()), CpPlan())
    assert found.failure and found.failure.task == 3 and "in task 3 of the job array" in diagnosis_text(found, None)
    assert diagnosis_json(found, None)["first_failure"]["task"] == 3
    (tmp_path / "slurm-77_3.out").rename(tmp_path / "slurm-77.out")
    (tmp_path / "slurm-77_4.out").rename(tmp_path / "slurm-78.out")
    assert triage(sorted(tmp_path.iterdir()), CpPlan()).failure is None


TIMED = [f"10:00:0{n} iteration {n}/ 9 | elapsed time per iteration (ms): 5.0 | lm loss: 2.0 |\n" for n in range(1, 6)]


WORKER = "worker-" + "ab" * 28 + "-01000000-{pid}.err"
RESET = "ConnectionResetError: [Errno 104] Connection reset by peer\n"
STEPS_OF_RL = "".join(f"step:{number} - actor/pg_loss:0.29 - timing_s/step:0.2\n" for number in range(8))


def _in_session(tmp_path, **logs):
    for name, text in logs.items():
        path = tmp_path / (name.replace("worker", WORKER.format(pid=7)) if name == "worker" else f"{name}.log")
        path.write_text(text)
    return triage(sorted(tmp_path.iterdir()), CpPlan())


def test_what_the_driver_of_ray_trained_on_after_is_no_failure_in_its_workers_own_file(tmp_path):
    shown = f"step:0 - actor/pg_loss:0.3\n(Policy pid=7) {RESET}{STEPS_OF_RL}"
    assert _in_session(tmp_path, driver=shown, worker="ready\n" + RESET).state == "running"


def test_an_error_that_only_a_worker_of_ray_has_counts(tmp_path):
    assert _in_session(tmp_path, driver=STEPS_OF_RL, worker="ready\n" + RESET).state == "failed"


def test_what_rays_worker_informs_of_is_not_how_the_job_ended(tmp_path):
    said = (
        "[2026-11-27 15:33:53,508 I 25325 25341] core_worker.cc:4630: Force kill actor request has received. The actor "
        "is dead because its owner has died. Owner worker exit type: INTENDED_USER_EXIT Worker exit detail: Owner's "
        "worker process has crashed.\n"
    )
    assert _in_session(tmp_path, driver=STEPS_OF_RL, core=said).state == "running"
    assert _in_session(tmp_path, driver=STEPS_OF_RL, core=said.replace(" I 2", " E 2")).state == "failed"


def test_what_a_script_said_above_its_programs_first_words_did_not_end_it(tmp_path):
    shell = "Traceback (most recent call last):\n  File \"os.py\", line 680, in f\n    raise\nKeyError: 'GPU_IDS'\n"
    starts, cause = "n1: ------------ arguments ------------\n", "ValueError: Unsupported communication type: x\n"
    assert _read(tmp_path, a_log=shell + starts + cause).failure.line == 6
    assert _read(tmp_path, b_log=shell + starts).failure.line == 4, "nothing below it says what ended the job"


def test_a_job_that_was_requeued_and_trained_to_its_end_was_not_stopped(tmp_path):
    said = "slurmstepd: error: *** STEP 51.0 ON n1 CANCELLED AT 2026-11-27T15:51:37 DUE TO PREEMPTION ***\n"
    again, done = "loading the model\nINFO: 0 errors\nRuntimeWarning: no Error\n", _steps() + "{'train_runtime': 9.1}\n"
    assert _read(tmp_path, a_err=said + again, a_out=done).state == "no-failure"
    assert _read(tmp_path, b_err=said, b_out=_steps()).state == "stopped"


def test_what_stands_below_a_start_at_the_very_top_is_not_of_the_shell(tmp_path):
    start = "Setting OMP_NUM_THREADS environment variable for each process to be 1\n"
    cause, waiting = "ValueError: no tokenizer\n", "INFO: waiting\n" * 200
    log = start + cause + "------------ arguments ------------\n" + waiting + "RuntimeError: CUDA out of memory\n"
    for above in ("", "module load cuda\n"):
        assert _read(tmp_path, a_log=above + log).failure.message == "ValueError: no tokenizer"


def test_warnings_that_repeat_until_the_launcher_gave_up_are_the_cause(tmp_path):
    said = "[W socket.cpp:653] [c10d] The IPv6 network addresses of (n9.x, 29400) cannot be retrieved (gai error: -2)\n"
    ended = "srun: error: n1: task 0: Exited with exit code 124\n"
    assert _read(tmp_path, a_log=said * 20 + ended).failure.signature.id == "host-unresolved"
    assert _read(tmp_path, b_log=said * 2 + ended).failure.signature.id == "srun-task"


def test_rays_own_logs_name_no_failure_that_no_row_knows(tmp_path):
    own = "python-core-worker-" + "ab" * 28 + "_77.log"
    (tmp_path / own).write_text(
        "[2026-11-27 15:49:13,508 E 25 25] x.cc:1: Failed to disconnect from the local raylet: IOError: Broken pipe\n"
    )
    assert _in_session(tmp_path, driver=STEPS_OF_RL).state == "running"


def test_rays_train_wrapper_is_not_what_the_worker_raised(tmp_path):
    wrapper = "ray.train.WorkerGroupError: Training failed due to worker errors:\n"
    failure = _in_session(tmp_path, driver=STEPS_OF_RL + wrapper, worker="IndexError: packed sequence 17\n").failure
    assert failure.message.startswith("IndexError")


def test_a_hangup_ends_a_job(tmp_path):
    said = "/x/utils.sh: line 114: 1508441 Hangup                  python train.py\n"
    failure = _read(tmp_path, a_log=_steps() + said).failure
    assert failure.exit_code == -1 and "SIGHUP" in failure.cause


def test_a_worker_that_ray_saw_die_is_named_before_those_that_lost_it(tmp_path):
    died = "(raylet) A worker died or was killed while executing a task by an unexpected system error.\n"
    failure = _in_session(tmp_path, driver=STEPS_OF_RL + died, worker="ready\n" + RESET).failure
    assert failure.signature.id == "ray-worker-died"
