"""What FSDP leaves open: memory is counted whole, so that more than there is does not say that a layout fails."""

from __future__ import annotations

from dataclasses import replace

import pytest

from megatron_hcp.cli.reports.plan import plan_lines
from megatron_hcp.cli.reports.plan_json import Shown, plan_json
from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.draw.plan import plan_scene
from megatron_hcp.plan.answer import judge, plan_job
from megatron_hcp.plan.change import remedy
from megatron_hcp.plan.constants import rates_for
from megatron_hcp.plan.layout import FSDP, Layout, PlanJob
from megatron_hcp.plan.model import plan_model
from megatron_hcp.plan.phases.change import first_failure
from megatron_hcp.plan.phases.job import Engine, RlJob
from megatron_hcp.plan.phases.memory import phases_of
from megatron_hcp.plan.why import why_not

LLAMA_70B = plan_model(
    {"num_layers": 80, "hidden_size": 8192, "heads": 64, "ffn_hidden_size": 28672, "vocab_size": 128256}
)
WHOLE = PlanJob(8, 8, gpu_named("h100"), 8, 8192, 64)
SHARED = replace(WHOLE, shards_weights=True, marks=(FSDP,))
RATES = rates_for(WHOLE)


def searched(job: PlanJob) -> Shown:
    """A search in which no layout fits, counted whole."""
    planned = plan_job(LLAMA_70B, job, RATES, {})
    assert not planned.best and planned.found.least is not None
    least = judge(LLAMA_70B, planned.found.least.layout, job, RATES)
    change = remedy(LLAMA_70B, job, RATES, {})
    return Shown(LLAMA_70B, job, RATES, [], [], legal=planned.found.legal, least=least, remedy=change)


@pytest.mark.slow
def test_a_search_in_which_nothing_fits_counted_whole_says_that_it_cannot_tell() -> None:
    whole, shared = (" ".join(" ".join(plan_lines(searched(job))).split()) for job in (WHOLE, SHARED))
    assert "no layout fits: " in whole and "change --gpus" in whole and "counted whole" not in whole
    assert "cannot tell whether a layout fits under FSDP: " in shared and "no layout fits" not in shared
    assert "change" not in shared and "GiB of a GPU, with weights and gradients counted whole" in shared
    drawn = plan_scene(plan_json(searched(SHARED)))
    assert drawn["nothing"] == "cannot tell whether a layout fits under FSDP"
    assert "counted whole" in drawn["reasons"][0]


def test_another_layout_is_compared_by_its_time_where_its_memory_is_open() -> None:
    best = judge(LLAMA_70B, Layout(tp=8, pp=8), replace(WHOLE, world_size=64), RATES)
    for job, kind, says in ((WHOLE, "memory", "more than the"), (SHARED, "faster", "cannot tell whether it fits")):
        job = replace(job, world_size=64)
        reason = why_not(LLAMA_70B, judge(LLAMA_70B, Layout(tp=4), job, RATES), best, job, RATES)
        assert reason.kind == kind and says in reason.text


def test_phases_that_need_more_memory_counted_whole_are_open_and_none_fails_first() -> None:
    rl, layout = RlJob("verl", 8192, 8192, engine=Engine("vllm", 0.6, 8)), Layout(tp=8)
    whole, shared = (phases_of(LLAMA_70B, layout, job, rl) for job in (WHOLE, SHARED))
    assert first_failure(LLAMA_70B, layout, WHOLE, rl, whole) is not None
    failure = first_failure(LLAMA_70B, layout, SHARED, rl, shared)
    shown = Shown(
        LLAMA_70B, SHARED, RATES, [judge(LLAMA_70B, layout, SHARED, RATES)], [], phases=shared, failure=failure
    )
    data = plan_json(shown)
    assert data["fails_first"] is None and [item["fits"] for item in data["phases"]] == [None] * len(shared)
    text = " ".join(" ".join(plan_lines(shown)).split())
    assert "cannot tell whether each phase fits under FSDP" in text and "each phase fits, " not in text
    assert "fails first" not in text and "weight synchronization?" in text
