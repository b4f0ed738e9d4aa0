"""Logs to which a job was started several times: the last start is the one that is asked about."""

import json

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from megatron_hcp.triage.report import diagnosis_document
from megatron_hcp.triage.screen_text import diagnosis_text
from support.logs import STEP, write_logs

STEPS = "".join(STEP.format(s=s, speed=400.0) for s in range(4))
OMP = (
    "W0822 10:00:00.100000 4711 torch/distributed/run.py:792] Setting OMP_NUM_THREADS environment variable for each "
    "process to be 1 in default, to avoid your system being overloaded\n"
)
ARGUMENTS = "------------------------ arguments ------------------------\n  bf16 .......... True\n"
SWIFT = "[INFO:swift] Start time of running main: 2026-02-05 18:02:41.532210\n"
NEMO = "Loaded configuration from: examples/configs/grpo_math_1B.yaml\n"
RAY = "2026-08-22 10:00:00,123\tINFO cli.py:63 -- Job 'raysubmit_9ay2' submitted successfully\n"
STARTS = [OMP, ARGUMENTS, OMP + ARGUMENTS, SWIFT, NEMO, RAY]
SPELLING = "[rank1]: ValueError: Unsupported communication type: x\n"
MEMORY = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
AGAIN = "[INFO] worker group FAILED. 3/3 attempts left; will restart worker group\n"


def _diagnosis(tmp_path, *texts):
    return triage(write_logs(tmp_path, a_log="".join(texts)), CpPlan())


def _signatures(diagnosis):
    return [attempt.failure and attempt.failure.signature.id for attempt in diagnosis.attempts]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("steps", ["", STEPS])
def test_the_last_start_in_a_log_is_the_one_that_is_told(tmp_path, start, steps):
    diagnosis = _diagnosis(tmp_path, start, SPELLING, start, steps, MEMORY)
    assert _signatures(diagnosis) == ["cp-comm-spelling", "gpu-memory"]
    assert diagnosis.failure.message == MEMORY.strip().partition(": ")[2]
    assert [attempt.steps for attempt in diagnosis.attempts] == [0, 4 if steps else 0]
    said = diagnosis_text(diagnosis, None).splitlines()
    assert said[0].startswith("first failure, attempt 1: ")
    assert "attempt 0 failed differently: " in "\n".join(said)
    assert [one["attempt"] for one in json.loads(diagnosis_document(diagnosis, None))["attempts"]] == [0, 1]


def test_a_start_after_training_steps_is_another_one_even_where_nothing_failed_before(tmp_path):
    """A log whose beginning is lost, of a job that was killed without a word."""
    diagnosis = _diagnosis(tmp_path, STEPS, OMP, SPELLING)
    assert _signatures(diagnosis) == [None, "cp-comm-spelling"]
    assert [attempt.steps for attempt in diagnosis.attempts] == [4, 0]


def test_a_last_start_that_trains_leaves_the_earlier_failures_in_one_line_each(tmp_path):
    diagnosis = _diagnosis(tmp_path, *[ARGUMENTS + SPELLING] * 5, ARGUMENTS, STEPS)
    assert (diagnosis.state, diagnosis.failure, len(diagnosis.attempts)) == ("running", None, 6)
    said = diagnosis_text(diagnosis, None).splitlines()
    assert said[0] == "no failure in 1 file, 4 training steps; attempt 5 is the last"
    assert [line.partition(":")[0] for line in said[1:4]] == [f"attempt {number} failed" for number in (4, 3, 2)]
    assert said[4] == "2 attempts before that failed too"


def test_a_failure_that_came_back_stops_the_job(tmp_path):
    diagnosis = _diagnosis(tmp_path, *[OMP + MEMORY] * 3)
    assert "attempt 1 failed the same way" in diagnosis_text(diagnosis, None)
    assert json.loads(diagnosis_document(diagnosis, None))["came_back"] is True


@pytest.mark.parametrize(
    "text",
    [
        OMP * 4 + ARGUMENTS + SPELLING,  # four nodes
        OMP + "1: ERROR: the cache is cold\n" + ARGUMENTS + SPELLING,
        OMP + SPELLING + OMP.replace("W0822", "[rank7]: W0822"),  # another writer: not the program that had begun
        ARGUMENTS + STEPS + "[after training is done] datetime: x\n" + ARGUMENTS + SPELLING,  # a program that follows
    ],
)
def test_programs_of_one_start_are_one_attempt(tmp_path, text):
    diagnosis = _diagnosis(tmp_path, text)
    assert _signatures(diagnosis) == ["cp-comm-spelling"]
    assert "attempt" not in diagnosis_text(diagnosis, None).splitlines()[0]


def test_ranks_that_torchrun_starts_again_are_counted_once(tmp_path):
    assert _signatures(_diagnosis(tmp_path, OMP, ARGUMENTS, MEMORY, AGAIN, ARGUMENTS, SPELLING)) == [
        "gpu-memory",
        "cp-comm-spelling",
    ]


def test_what_a_start_waited_for_is_not_what_an_earlier_one_did(tmp_path):
    waited = (
        "[rank{rank}]:[E822 10:00:00.1 ProcessGroupNCCL.cpp:688] [Rank {rank}] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001\n"
    )
    first, last = waited.format(rank=0, seq=3), waited.format(rank=2, seq=9)
    diagnosis = _diagnosis(tmp_path, OMP, STEPS, first, OMP, STEPS, last)
    assert (diagnosis.waited.sequence, diagnosis.waited.arrived) == (9, (2,))


def test_a_start_that_torchrun_does_not_tell_is_known_by_the_programs_first_lines(tmp_path):
    """Its agent says only where it informs that it starts its workers again."""
    first = "2026-08-22 10:00:{second} | INFO | rank{rank} | starting on 2 ranks, process {second}\n"
    begin = "".join(first.format(second=second, rank=rank) for rank, second in enumerate((10, 11)))
    again = "".join(first.format(second=second, rank=rank) for rank, second in enumerate((50, 51)))
    closed = (
        "W0822 10:00:30.1 9 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 12 closing signal "
        "SIGTERM\n"
    )
    ended = "[rank1]: KeyError: 'shard 7'\n" + closed
    diagnosis = _diagnosis(tmp_path, begin, STEPS, ended, again, MEMORY)
    assert _signatures(diagnosis) == ["exception", "gpu-memory"]
    assert [attempt.steps for attempt in diagnosis.attempts] == [4, 0]
    once = _diagnosis(tmp_path, begin, STEPS, ended, "saving the state of the reader\n", MEMORY)
    assert len(once.attempts) == 1, "a rank may write on while it is ended"
    other = _diagnosis(tmp_path, begin, STEPS, again, "[rank1]: KeyError: 'shard 7'\n")
    assert len(other.attempts) == 1, "no worker had ended"


def test_a_line_of_the_training_that_a_rank_writes_while_it_is_ended_is_no_start(tmp_path):
    """A log may begin within the training, and what a program writes at its start it may write again."""
    closed = (
        "W0822 10:00:30.1 9 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 12 closing signal "
        "SIGTERM\n"
    )
    reads = "2026-08-22 10:00:00 INFO reader | reading the next shard, number 4\n"
    for log in (
        STEPS + "[rank1]: KeyError: 'shard 7'\n" + closed + STEPS.split("\n")[0],
        reads + STEPS + reads + "[rank1]: KeyError: 'shard 7'\n" + closed + reads,
    ):
        assert len(_diagnosis(tmp_path, log).attempts) == 1
