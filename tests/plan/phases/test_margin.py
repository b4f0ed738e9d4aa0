"""What a counted peak says: fits, tight or does not fit, and the setting that makes room."""

from __future__ import annotations

import pytest

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.model import plan_model
from megatron_hcp.plan.phases.job import ROLLOUT, UPDATE, Engine, RlJob
from megatron_hcp.plan.phases.margin import ABOVE, BELOW, FAILS, FITS, TIGHT, answer, answer_of, room_of
from megatron_hcp.plan.phases.memory import Phase, phases_of

MODEL = plan_model(
    {
        "num_hidden_layers": 28, "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4,
        "intermediate_size": 18944, "vocab_size": 152064, "hidden_act": "silu",
    }
)  # fmt: skip
JOB = PlanJob(
    world_size=8, gpus_per_node=8, gpu=gpu_named("h100"), nvlink_domain=8, seq_length=8192, global_batch=64,
)  # fmt: skip
LAYOUT = Layout(tp=4, recompute="full")
RL = RlJob("verl", 8192, 8192, engine=Engine("vllm", 0.8, 4), offloads=frozenset({"weights", "gradients", "optimizer"}))


def at(share: float, name: str = UPDATE, **more: bool) -> Phase:
    return Phase(name, 80 * share, 80.0, 0, 0, {}, **more)


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.5, FITS), (1 - BELOW - 0.01, FITS), (1 - BELOW + 0.01, TIGHT), (1.0, TIGHT), (1 + ABOVE - 0.01, TIGHT),
     (1 + ABOVE + 0.01, FAILS)],
)  # fmt: skip
def test_a_peak_within_the_margin_is_tight(share: float, said: str) -> None:
    assert answer(at(share)) == said


def test_a_phase_that_is_known_to_need_more_is_never_said_to_fit() -> None:
    assert answer(at(0.3, misses=True)) == TIGHT and answer(at(1.5, misses=True)) == FAILS
    room = room_of(MODEL, LAYOUT, JOB, RL, [at(0.7, ROLLOUT), at(0.3, misses=True)])
    assert room is not None and room.phase.name == UPDATE and room.spare_gib == pytest.approx(56.0)


def test_a_step_is_answered_by_its_worst_phase() -> None:
    assert answer_of([at(0.5), at(0.6)]) == FITS
    assert answer_of([at(0.5), at(0.95)]) == TIGHT
    assert answer_of([at(0.95), at(1.5), at(0.5)]) == FAILS
    assert answer_of([at(0.5), at(2.0, counts_whole=True)]) is None  # FSDP leaves it open


def test_a_tight_rollout_is_told_what_it_leaves_and_the_share_that_makes_room() -> None:
    phases = phases_of(MODEL, LAYOUT, JOB, RL)
    room = room_of(MODEL, LAYOUT, JOB, RL, phases)
    assert room is not None and room.phase.name == ROLLOUT
    assert room.spare_gib == pytest.approx(room.phase.usable - room.phase.peak) and room.spare_gib > 0
    key, _, share = room.setting.partition("=")
    assert key == "actor_rollout_ref.rollout.gpu_memory_utilization" and float(share) < 0.8
    larger, mended = (RL._replace(engine=Engine("vllm", float(share) + more, 4)) for more in (0.05, 0.0))
    assert answer_of(phases_of(MODEL, LAYOUT, JOB, larger)) == TIGHT  # no more is taken from the engine than must be
    found = phases_of(MODEL, LAYOUT, JOB, mended)
    assert answer_of(found) == FITS and room_of(MODEL, LAYOUT, JOB, mended, found) is None


def test_a_step_that_does_not_fit_has_no_room_to_name() -> None:
    long = RL._replace(update_tokens=1 << 20)
    found = phases_of(MODEL, LAYOUT, JOB, long)
    assert answer_of(found) == FAILS and room_of(MODEL, LAYOUT, JOB, long, found) is None
