"""Logs of jobs that did not fail, however frightening their words: none is called a failure.

healthy.jsonl holds short excerpts of published logs, each with its source and why its lines mean no failure; those that
show a training that has begun (`runs`) are not unclear.
"""

import json
from pathlib import Path

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from megatron_hcp.triage.screen_text import diagnosis_text
from support.rows import rows

CASES = [json.loads(line) for line in (Path(__file__).parent / "healthy.jsonl").read_text("utf-8").splitlines()]
STEP = " [2026-08-22 10:00:00] iteration 8/ 9 | elapsed time per iteration (ms): 5.0 | lm loss: 2.3 |\n"
DONE = "[after training is done] datetime: 2026-02-05 18:02:41\n"
LOST = "0: [rank0]: RuntimeError: [x/pair.cc:553] Connection closed by peer [127.0.0.1]:3456\n"


def _read(tmp_path, text):
    (tmp_path / "job.log").write_text(text, "utf-8")
    return triage([tmp_path / "job.log"], CpPlan())


@pytest.mark.slow
@rows("case", CASES)
def test_a_healthy_log_has_no_failure(tmp_path, case):
    diagnosis = _read(tmp_path, "\n".join(case["log"]) + "\n")
    assert diagnosis.failure is None, diagnosis.failure.cause
    is_start = diagnosis.unclear == "no-step" and not case.get("runs")
    assert diagnosis.state in ("running", "no-failure") or is_start, diagnosis.unnamed
    assert diagnosis.ok or is_start, diagnosis.cp


def test_after_the_training_a_lost_peer_is_no_failure_but_an_error_is(tmp_path):
    """Megatron-LM saves its last checkpoint after it said that the training is done."""
    assert _read(tmp_path, STEP + DONE + LOST).failure is None
    assert _read(tmp_path, STEP + LOST).failure is not None
    full = "0: [rank0]: OSError: [Errno 28] No space left on device: '/ckpt/iter_9'\n"
    assert _read(tmp_path, STEP + DONE + LOST + full).failure.signature.id == "disk-full"
    limit = "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-08-22T10:00:00 DUE TO TIME LIMIT ***\n"
    assert _read(tmp_path, STEP + DONE + limit).failure.signature.id == "time-limit"


def test_what_ends_ranks_after_the_training_was_done_is_said(tmp_path):
    stop = ':::MLLOG {"key": "run_stop", "value": null}\n'
    limit = "slurmstepd: error: *** STEP 12.1 ON n1 CANCELLED AT 2026-08-22T10:00:00 DUE TO TIME LIMIT ***\n"
    ended = "srun: error: n1: task 6: Exited with exit code {}\n"
    late = _read(tmp_path, stop + LOST + limit + ended.format(1))
    assert late.failure is None and [said[1:] for said in late.after_done] == [(3, "the job reached its time limit")]
    assert "the training was done before" in diagnosis_text(late, None)
    aborted = _read(tmp_path, stop + LOST + ended.format(134) + limit)
    assert aborted.failure is None and "a rank aborted while its processes shut down" in aborted.after_done[0][2]
    failure = _read(
        tmp_path, "[after training is done] datetime: 2026-08-22 10:00:00\n" + LOST + ended.format(134)
    ).failure
    assert (failure.signature.id, failure.line, failure.exit_code) == ("aborted-at-exit", 3, 134)
    assert "Connection closed by peer" in failure.cause
    assert _read(tmp_path, STEP + ended.format(134)).failure.signature.id == "srun-task"


EVALUATED = " validation loss at iteration 9 on test set | lm loss value: 2.31E+00 | lm loss PPL: 9.9E+00 |\n"


@pytest.mark.parametrize("exit_code", [134, 139])
def test_after_megatrons_last_evaluation_a_crash_is_told_and_is_no_failure(tmp_path, exit_code):
    """NVIDIA/Megatron-LM#1874: processes abort while they shut down; the checkpoint was saved before."""
    crash = "0:   what():  CUDA error: driver shutting down\n"
    ended = f"srun: error: n1: task 0: Exited with exit code {exit_code}\n"
    late = _read(tmp_path, STEP + EVALUATED + crash + ended)
    assert late.failure is None and late.ok and late.is_done
    text = diagnosis_text(late, None)
    assert "the training finished" in text and ("driver shutting down" in text or "139" in text)
    assert _read(tmp_path, STEP + crash + ended).failure is not None
    on_validation = EVALUATED.replace("test set", "validation set")
    assert _read(tmp_path, STEP + on_validation + crash + ended).failure is not None, "it goes on after that"
    full = "0: [rank0]: OSError: [Errno 28] No space left on device: '/ckpt/iter_9'\n"
    assert _read(tmp_path, STEP + EVALUATED + full).failure.signature.id == "disk-full"


def test_training_that_goes_on_after_it_was_done_can_fail(tmp_path):
    assert _read(tmp_path, STEP + DONE + STEP * 3 + LOST).failure is not None


@pytest.mark.parametrize(
    "line", ["ERROR: the licence server said no", "[2026-08-22 10:00:00,885] [ERROR] [x.py:9:run] it went wrong"]
)
def test_a_line_that_says_error_and_is_not_known_makes_the_log_unclear(tmp_path, line):
    diagnosis = _read(tmp_path, "starting\n" + line + "\n")
    assert (diagnosis.state, diagnosis.failure, diagnosis.ok) == ("unclear", None, False)
    assert diagnosis.unnamed[1] == 2 and line.endswith(diagnosis.unnamed[2].removeprefix("ERROR: "))


def test_a_text_that_is_no_log_of_a_training_is_not_called_healthy(tmp_path):
    assert _read(tmp_path, "hello, world\nhow are you?\n").unclear == "no-log"
    assert _read(tmp_path, "loading the tokenizer\n").unclear == "no-step"
    assert _read(tmp_path, "hello, world\n" + STEP).state == "running"
    assert _read(tmp_path, DONE).state == "no-failure"


def test_last_words_without_a_known_failure_are_unclear_unless_a_step_follows(tmp_path):
    words = "Memory of the card was lost, and the reset failed\n"
    diagnosis = _read(tmp_path, STEP + "saving\n" + words)
    assert (diagnosis.unclear, diagnosis.unnamed[1:]) == ("error-line", (3, words.rstrip()))
    assert _read(tmp_path, STEP + words + STEP).state == "running"
    assert _read(tmp_path, STEP + words + "goes on\n" * 40).state == "running", "they are not its last words"
    assert _read(tmp_path, STEP + "WARNING: " + words).state == "running"


def test_steps_after_such_a_line_make_the_log_clear(tmp_path):
    assert _read(tmp_path, "ERROR: the licence server said no\n" + STEP * 3).state == "running"
    assert _read(tmp_path, "ERROR: the licence server said no\n" + STEP).state == "unclear"


def test_a_line_that_says_error_above_a_step_and_again_below_it_was_survived(tmp_path):
    """Reward functions say the same of sample after sample."""
    said = "ERROR: no answer in sample 812 of 3\n"
    other = "ERROR: no answer in sample 9 of 4\n"
    assert _read(tmp_path, said + STEP + other).state == "running"
    assert _read(tmp_path, said + STEP + "ERROR: the store is gone\n").state == "unclear"
    raised = (
        "ERROR:2026-08-22 10:00:00,1:Traceback (most recent call last):\n" + '  File "x.py", line 3, in f\n    g()\n'
    )
    raised += "TypeError: no answer\n"
    assert _read(tmp_path, raised + STEP).state != "running"
    assert _read(tmp_path, raised + STEP + raised).state == "running"


def test_warnings_and_metrics_are_not_unclear(tmp_path):
    lines = "WARNING: error bars are off\nval_error: 0.12 | error rate 3 %\nINFO: 0 errors\nerrors=0\n"
    assert _read(tmp_path, STEP + lines).state == "running"


def test_a_warning_that_a_peer_is_gone_is_unclear_unless_the_training_was_done(tmp_path):
    """Ranks that end one after the other print it at the end of a good job too."""
    warned = (
        "[rank6]:[W729 10:15:17.529361055 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=76, "
        "addr=[localhost]:60950, remote=[localhost]:29500): Connection reset by peer\n"
    )
    assert _read(tmp_path, warned).state == "unclear"
    assert _read(tmp_path, warned.replace(":[W729", ":[E729")).state == "failed"
    assert _read(tmp_path, STEP + DONE + warned).state == "no-failure"


@pytest.mark.parametrize(
    "end",
    [
        DONE,
        "{'train_runtime': 12.5, 'train_samples_per_second': 3.1}\n",
        "------- Job 'raysubmit_9ay2' succeeded -------\n",
        "(TaskRunner pid=3714) (\"Final validation metrics: {'val-core/openai/gsm8k/acc/mean@1': \"\n"
        "(TaskRunner pid=3714)  '0.81}')\n",
        "Max number of steps has been reached, stopping training early\n",
        "[INFO:swift] End time of running main: 2026-02-05 18:02:41.532210\n",
        'hcp-job: {"event": "end", "job": "7", "attempt": 0, "status": "completed"}\n',
    ],
)
def test_a_job_whose_log_shows_the_end_no_longer_runs(tmp_path, end):
    assert (_read(tmp_path, STEP).state, _read(tmp_path, STEP + end).state) == ("running", "no-failure")


def test_the_word_of_a_program_that_ends_in_any_way_is_not_that_the_training_is_done(tmp_path):
    """verl/experimental/fully_async_policy/fully_async_main.py prints it in `finally`."""
    failed = "ValueError: Unsupported communication type: x\n"
    end = "(FullyAsyncTaskRunner pid=9) [ASYNC MAIN] Training completed or interrupted\n"
    assert _read(tmp_path, STEP + failed + end).state == "failed"
    assert _read(tmp_path, STEP + end).state == "running"
