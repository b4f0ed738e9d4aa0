"""What a search does not look at, because what it has seen already says that nothing is to be found there."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.plan.change import Remedy, remedy
from megatron_hcp.plan.constants import rates_of
from megatron_hcp.plan.layout import PlanJob
from megatron_hcp.plan.model import PlanModel, plan_model
from megatron_hcp.plan.search import search
from megatron_hcp.plan.space import Fixed, Space

EXPERTS = {
    "num_hidden_layers": 12, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 4,
    "intermediate_size": 14336, "vocab_size": 128256, "num_experts_per_tok": 4, "moe_intermediate_size": 1536,
}  # fmt: skip
JOB = PlanJob(8, 8, gpu_named("h100"), 8, 8192, 64)


def searched(model: PlanModel, job: PlanJob, fixed: Fixed) -> tuple[Remedy | None, list[Fixed]]:
    """The change that is named, and what was fixed in each search for it."""
    found: list[Fixed] = []

    def look(frame: FrameType, event: str, what: object) -> None:
        if event == "call" and frame.f_code.co_name == "run" and frame.f_globals["__name__"] == search.__module__:
            found.append(frame.f_locals["self"].space.fixed)

    sys.setprofile(look)
    try:
        change = remedy(model, job, rates_of(job.gpu, "bf16", {}), fixed)
    finally:
        sys.setprofile(None)
    return change, found


@pytest.mark.slow
def test_larger_jobs_on_which_the_weights_alone_are_too_much_are_not_searched() -> None:
    """Of 8 to 64 GPUs, only those are looked through that have the memory: the change is the same."""
    change, found = searched(plan_model({**EXPERTS, "num_experts": 1024}), JOB, {})
    assert change is not None and change.text == "--gpus 64" and len(found) <= 2


def test_sizes_beyond_all_measured_steps_are_not_searched_for_a_change_that_surely_fits() -> None:
    """840 experts over 8 ranks are 105 on each, where no measured step has more than 32."""
    change, found = searched(plan_model({**EXPERTS, "num_experts": 840, "num_hidden_layers": 80}), JOB, {"ep": 8})
    assert change is None and found and {"ep": 8} not in found


@pytest.mark.parametrize("fixed", [{"ep": 8}, {"ep": 997}, {}], ids=str)
def test_where_the_experts_cannot_be_shared_out_no_attention_is_looked_at(fixed: Fixed) -> None:
    """Of 997 experts, a prime number, no rank of eight has an equal share."""
    model = plan_model({**EXPERTS, "num_experts": 997})
    assert not list(Space(model, JOB, fixed, covered=True).attention())
    assert list(Space(model, JOB, {"ep": 1}).attention())
