"""How far a training came, by the words that each framework writes."""

import pytest

from megatron_hcp.job.progress import checkpoint_mark, saved_in, steps_in

# Written by training_log (Megatron-LM and Bridge), grpo_train (NeMo-RL), tqdm in fit (verl), patcher (ms-swift).
LINES = [
    " [2026-08-22 10:00:00] iteration        {n}/       {of} | consumed samples:          256 |",
    "========================= Step {n}/{of} =========================",
    "Training Progress:  42%|####2     | {n}/{of} [01:00<10:00, 30.0s/it]",
    "{{'loss': '1.2', 'global_step/max_steps': '{n}/{of}', 'percentage': '2.00%'}}",
]


@pytest.mark.parametrize("line", LINES)
def test_a_framework_counts_its_iterations(line):
    text = "\n".join(line.format(n=n, of=12) for n in (3, 4, 5)).encode()
    steps = steps_in([text])
    assert (steps.last, steps.of, steps.finished) == (5, 12, False)
    assert steps_in([text, line.format(n=12, of=12).encode()]).finished is True


def test_what_does_not_count_says_nothing():
    assert steps_in([b"iteration 5\nStep 3 of 4\n100/100\n"]).finished is None


def test_the_last_rank_may_be_on_any_node():
    assert steps_in([b" iteration        7/       9 |", b"", b" iteration        9/       9 |"]).finished is True


def test_what_says_that_it_leaves_is_not_done_even_if_it_counts_nothing():
    steps = steps_in([b"[exiting program after 220.1 minutes] datetime: x\n"])
    assert steps.finished is False and "exiting program after 220.1 minutes" in str(steps)


def test_a_new_checkpoint_changes_the_mark(tmp_path):
    marks = [checkpoint_mark(tmp_path)]
    for name, text in (("latest_checkpointed_iteration.txt", "2"), ("latest_train_state.pt", "x")):
        (tmp_path / name).write_text(text)
        marks.append(checkpoint_mark(tmp_path))
    assert len(set(marks)) == 3 and checkpoint_mark(None) == marks[0]
    assert saved_in([b"  successfully saved checkpoint from iteration       4 to s3://x"]) and not saved_in([b"saving"])
