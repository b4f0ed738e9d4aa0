"""What the rank that ended first wrote last says why it ended, in whatever form; and a rank that ended well is seen."""

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from support.logs import write_logs

STARTS = "Loading the model on 4 ranks\n"
LOST = "RuntimeError: [../gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:3456\n"
WORKER = (
    "E0822 10:00:04.5 9 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: {code}) "
    "local_rank: {local} (pid: 12) of binary: /usr/bin/python\n"
)
FIELDS = """\
[{place}]:
  time      : 2026-08-22_10:00:04
  host      : n1
  rank      : {rank} (local_rank: {rank})
  exitcode  : {code} (pid: 12)
"""
SAID = (
    "[data] the plan of the shards does not match: 4 ranks, 8 shards",
    "giving up: no free slot in the pool",
    "vocabulary hash mismatch, stopping",
)


def _block(first, code, *others):
    fields = [FIELDS.format(place=place, rank=rank, code=-15) for place, rank in enumerate(others, start=1)]
    return "".join(fields) + "Root Cause (first observed failure):\n" + FIELDS.format(place=0, rank=first, code=code)


def _read(tmp_path, **files):
    return triage(write_logs(tmp_path, **files), CpPlan())


@pytest.mark.parametrize("said", SAID)
def test_a_plain_line_above_the_report_of_the_rank_that_ended_first_is_the_cause(tmp_path, said):
    log = STARTS + said + "\n[rank0]: " + LOST + WORKER.format(code=3, local=1) + _block(1, 3, 0)
    diagnosis = _read(tmp_path, a_log=log)
    failure = diagnosis.failure
    assert (failure.kind, failure.rank, failure.exit_code, failure.message) == ("cause", 1, 3, said)
    assert failure.line == 2 and diagnosis.advice.action == "stop"


@pytest.mark.parametrize("said", SAID)
def test_a_plain_line_at_the_end_of_a_ranks_own_log_is_the_cause(tmp_path, said):
    launcher = WORKER.format(code=3, local=1) + _block(1, 3, 0)
    failure = _read(tmp_path, rank_0_log=STARTS + LOST, rank_1_log=STARTS + said + "\n", launcher_log=launcher).failure
    assert (failure.rank, failure.message, failure.path.name) == (1, said, "rank_1.log")


@pytest.mark.parametrize("said", SAID)
def test_a_plain_line_that_srun_or_lightning_labels_is_the_cause(tmp_path, said):
    ended = "srun: error: n1: task 2: Exited with exit code 4\n"
    failure = _read(tmp_path, a_log=f"2: {said}\n0: [rank0]: {LOST}{ended}").failure
    assert (failure.rank, failure.message) == (2, said)
    other = _read(tmp_path, a_log=f"1: {said}\n0: [rank0]: {LOST}{ended}").failure
    assert other.message != said, "another task wrote it"
    ended = "[rank: 2] Child process with PID 7 terminated with code 4.\n"
    assert _read(tmp_path, a_log=f"{STARTS}{said}\n{ended}").failure.message == said


def test_words_that_are_no_reason_leave_the_launchers_report(tmp_path):
    for said in ("epoch 3 begins", "Step 4: loss 2.5", "WARNING: shard mismatch, stopping the prefetch"):
        log = f"{STARTS}{said}\n[rank0]: {LOST}" + WORKER.format(code=3, local=1) + _block(1, 3, 0)
        assert _read(tmp_path, a_log=log).failure.kind == "report"


def test_a_rank_that_ended_well_before_the_others_is_named(tmp_path):
    lost = {f"rank_{rank}_log": STARTS + LOST for rank in (0, 1, 2)}
    launcher = WORKER.format(code=1, local=2) + _block(2, 1, 0, 1)
    for last in ("no batch is left, finished", "Done.", "2026-08-22 10:00:01 | INFO | rank3 | exiting"):
        diagnosis = _read(tmp_path, **lost, rank_3_log=STARTS + last + "\n", launcher_log=launcher)
        assert diagnosis.failure.signature.id == "left-early" and diagnosis.failure.rank == 3
        assert diagnosis.advice.action == "stop"
    waits = _read(tmp_path, **lost, rank_3_log=STARTS + "saving the state\n", launcher_log=launcher)
    assert waits.failure.signature.id != "left-early", "its log may be cut off"
    both = _read(tmp_path, **lost, rank_3_log=STARTS + "Done.\n", launcher_log=launcher + _block(3, 1))
    assert both.failure.signature.id != "left-early", "its launcher saw it fail"


def test_a_rank_whose_log_ends_within_the_training_did_not_end_well(tmp_path):
    """Its node may have been lost."""
    lost = {f"rank_{rank}_log": STARTS + LOST for rank in (0, 1, 2)}
    launcher = WORKER.format(code=1, local=2) + _block(2, 1, 0, 1)
    of_part = ("step 41 done, loss 2.5", "saved the state, done", "a loader's worker exited", "NCCL init done")
    for last in ("iteration 41 completed in 3.2 s", *of_part):
        diagnosis = _read(tmp_path, **lost, rank_3_log=STARTS + last + "\n", launcher_log=launcher)
        assert diagnosis.failure.signature.id != "left-early", last


@pytest.mark.parametrize(
    "said",
    [
        "Missing keys: [], unexpected keys: []",
        "flash-attn was not found, using PyTorch's attention",
        "apex cannot be imported: falling back to torch.optim",
        "no such template; using the default one instead",
    ],
)
def test_words_that_tell_how_the_program_goes_on_are_no_reason(tmp_path, said):
    log = STARTS + said + "\n" + WORKER.format(code=3, local=1) + _block(1, 3, 0)
    assert _read(tmp_path, a_log=log).failure.kind == "report"


def test_words_that_the_training_went_on_after_are_no_reason(tmp_path):
    """Nor are those of a rank that signs them itself, where another one ended."""
    end = WORKER.format(code=3, local=1) + _block(1, 3, 0)
    steps = "".join(f"step {number} loss 2.5 lr 0.1\n" for number in range(9))
    log = STARTS + "no state in the folder: checkpoint not found\n" + steps + end
    assert _read(tmp_path, a_log=log).failure.kind == "report"
    for rank, kind in ((0, "report"), (1, "cause")):
        log = STARTS + f"rank {rank}: the vocabulary has another hash, refusing to start\n" + end
        assert _read(tmp_path, a_log=log).failure.kind == kind
