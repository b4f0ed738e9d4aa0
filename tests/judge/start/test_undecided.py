"""Guards of upstream's start-up that a hidden setting may violate leave a launch undecided."""

from __future__ import annotations

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.start.undecided import undecided_by_guards
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.readers.target import read_text
from megatron_hcp.rules.registry import BY_ID, rules_for

CORE = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 8 --hidden-size 64 --num-attention-heads 4 --bf16 "
    "--seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 8"
)


def launch_of(words: str) -> Launch:
    return build_launch(read_text(f"{CORE} {words}\n", "x.sh"))


def undecided(launch: Launch) -> set[str]:
    (judged,) = check_launch(launch, rules_for, fixes=False).judged_by
    return {need for one in undecided_by_guards(launch, judged) for need in one.needs}


def test_a_hidden_setting_that_a_guard_may_refuse_is_undecided() -> None:
    assert undecided(launch_of("--micro-batch-size $MBS")) == {"micro_batch_size"}
    assert undecided(launch_of("--log-interval $SECONDS")) == set()


def test_what_the_bound_on_trials_leaves_untried_is_undecided_too(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = launch_of("--micro-batch-size $MBS --num-experts $EXPERTS")
    assert undecided(launch) == {"micro_batch_size"}
    for bound in ("_MOST_TRIALS", "_MOST_STEPS"):
        with monkeypatch.context() as bounded:
            bounded.setattr(f"megatron_hcp.judge.start.undecided.{bound}", 0)
            assert undecided(launch) == {"micro_batch_size", "num_experts"}, bound


def test_a_value_that_takes_too_many_steps_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("megatron_hcp.judge.start.undecided._MOST_STEPS_OF_ONE", 1)
    assert undecided(launch_of("--recompute-granularity $R")) == set()


def test_a_check_without_a_verdict_tries_no_guard() -> None:
    launch = launch_of("--micro-batch-size $MBS")
    assert check_launch(launch, rules_for).undecided
    assert check_launch(launch, rules_for, verdict=False).undecided == ()
    assert check_launch(launch, [BY_ID["CP001"]], verdict=False).undecided == ()
