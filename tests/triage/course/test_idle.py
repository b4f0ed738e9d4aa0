"""Trainings that run and learn nothing: skipped steps beyond reason, and losses that are exactly 0."""

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage

DEEPSPEED = (
    "[2026-03-04 10:12:44,000] [INFO] [logging.py:96:log_dist] [Rank 0] step={n}, skipped={k}, lr=[1e-05], mom=[]\n"
)
MEGATRON = (
    " iteration {n:8d}/     900 | elapsed time per iteration (ms): 512.3 | learning rate: 1.0E-04 |{loss} loss scale: "
    "{scale} | number of skipped iterations: {k:3d} | number of nan iterations: {nan:3d} |\n"
)
TRAINER = "{{'loss': {loss}, {more}'learning_rate': 1e-05, 'epoch': 0.0{n}}}\n"
DONE = "{'train_runtime': 12.3, 'train_loss': 0.0, 'epoch': 1.0}\n"


def _read(tmp_path, *lines):
    (tmp_path / "job.log").write_text("".join(lines))
    return triage([tmp_path / "job.log"], CpPlan())


def _deepspeed(*counts):
    return [DEEPSPEED.format(n=n, k=k) for n, k in counts]


def _megatron(count, scale, skipped=10, nan=0, loss="", first=1):
    return [MEGATRON.format(n=n * 10, loss=loss, scale=scale, k=skipped, nan=nan) for n in range(first, first + count)]


def test_steps_that_deepspeed_skips_beyond_reason_are_a_failure(tmp_path):
    diagnosis = _read(tmp_path, *_deepspeed((1990, 1985), (2000, 1995)))
    failure = diagnosis.failure
    assert (diagnosis.state, failure.signature.id, failure.line) == ("failed", "steps-skipped", 2)
    assert failure.cause == "the training learns nothing: 1995 of 2000 steps were skipped"
    assert diagnosis.advice.action == "stop"


@pytest.mark.parametrize("counts", [((10, 8), (20, 8)), ((20, 17), (30, 17)), ((4000, 60), (5000, 60))])
def test_steps_that_a_loss_scale_takes_to_come_down_are_no_failure(tmp_path, counts):
    assert _read(tmp_path, *_deepspeed(*counts)).state == "running"


def test_a_log_in_which_megatron_skips_every_step_is_a_failure_or_unclear(tmp_path):
    spent = _read(tmp_path, *_megatron(3, 1.0))
    assert (spent.failure.signature.id, spent.failure.line) == ("steps-skipped", 3)
    assert _read(tmp_path, *_megatron(4, 65536.0)).failure.signature.id == "steps-skipped", "40 steps: 2**32 is used up"
    assert _read(tmp_path, *_megatron(2, 65536.0)).unclear == "error-line"
    assert _read(tmp_path, *_megatron(1, 8388608.0)).state == "running", "so every fp16 training begins"
    assert _read(tmp_path, *_megatron(3, 1.0, skipped=0, nan=10)).state == "failed"


def test_steps_with_a_loss_end_a_row_of_skipped_ones(tmp_path):
    good = _megatron(1, 65536.0, skipped=0, loss=" lm loss: 2.3E+00 |", first=9)
    assert _read(tmp_path, *_megatron(8, 65536.0), *good).state == "running"


@pytest.mark.parametrize(
    ("loss", "more", "state"),
    [
        ("0.0", "", "unclear"),
        ("0.0", "'grad_norm': 0.0, ", "unclear"),
        ("0.0", "'grad_norm': 1.4142135381698608, ", "unclear"),
        ("0.0", "'grad_norm': 0.0003, ", "running"),
        ("0.0", "'grad_norm': 0.9, 'reward': 0.25, ", "running"),
        ("0.0004", "", "running"),
        ("0.0000", "", "running"),
    ],
)
def test_a_loss_that_is_exactly_0_line_after_line_is_not_passed_over(tmp_path, loss, more, state):
    """A small gradient beside it: the data are learnt by heart. Rewards: a policy's loss is 0 where all are equal."""
    lines = [TRAINER.format(loss=loss, more=more, n=n) for n in range(1, 6)]
    diagnosis = _read(tmp_path, *lines)
    assert diagnosis.state == state
    assert state == "running" or "the loss is 0" in diagnosis.unnamed[2]
    done = "no-failure" if state == "running" else state
    assert _read(tmp_path, *lines, DONE).state == done, "that the training finished does not make it good"
    assert _read(tmp_path, *lines[:2]).state == "running"
