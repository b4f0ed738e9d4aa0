"""A training hangs when no iteration ends; starting and saving may take longer, and a heartbeat is no step."""

import pytest

from megatron_hcp.job.stall import StallWatch


class Log:
    """A log that grows, and a clock that is moved by hand."""

    def __init__(self, path):
        self.path, self.now = path, 0.0
        path.write_text("")
        self.watch = StallWatch(lambda: [path], 60, allowance_s=600, now=lambda: self.now)

    def after(self, seconds, text=""):
        self.now += seconds
        with self.path.open("a") as file:
            file.write(text)
        return self.watch.hangs()


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path / "train-r0-node0.log")


STEP = " iteration        {}/      99 |\n"


def test_a_heartbeat_of_one_rank_is_no_step(log):
    assert log.after(1, STEP.format(1)) == ""
    said = [log.after(20, "0: heartbeat\n") for _ in range(4)]
    assert said[:3] == ["", "", ""] and said[3].startswith("no iteration ended for 80 s, after iteration 1 of 99")


def test_a_save_may_take_longer_and_counts_as_a_step_at_its_end(log):
    log.after(1, STEP.format(1) + "saving checkpoint at iteration       1 to /ck\n")
    assert log.after(500, "x\n") == ""
    assert log.after(1, "successfully saved checkpoint from iteration       1\n") == ""
    assert log.after(50) == "" and log.after(50) != ""


def test_a_save_that_never_ends_hangs_too(log):
    log.after(1, STEP.format(1) + "saving checkpoint at iteration       1 to /ck\n")
    assert log.after(601) != ""


def test_a_start_may_take_longer_and_a_training_that_counts_nothing_needs_only_lines(log):
    assert log.after(500) == "" and log.after(1, "loading\n") == "" and log.after(500) == ""
    assert log.after(200).startswith("training wrote no line for 700 s")
