"""The search finds what looking at every layout finds, and what it prints is legal and fits."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from megatron_hcp.cost.gpus import GPUS, gpu_named
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.plan.answer import judge, plan_job
from megatron_hcp.plan.change import remedy
from megatron_hcp.plan.constants import Rates, rates_of
from megatron_hcp.plan.found import TIED, WINDOW
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.legal import forbidden
from megatron_hcp.plan.memory import may_fit, memory, usable_gib
from megatron_hcp.plan.memory.peak import MEMORY_ERROR
from megatron_hcp.plan.model import PlanModel, plan_model
from megatron_hcp.plan.search import search
from megatron_hcp.plan.space import Fixed, Space, parse_fixed
from megatron_hcp.plan.time.step import step_time
from megatron_hcp.plan.why import why_not

ROOT = Path(__file__).resolve().parents[2]
DENSE = {
    "num_hidden_layers": 12, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256,
}  # fmt: skip
EXPERTS = {
    **DENSE, "num_key_value_heads": 4, "num_experts": 32, "num_experts_per_tok": 4, "moe_intermediate_size": 1536,
}  # fmt: skip
LATENT = {
    **EXPERTS, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "num_key_value_heads": 32, "first_k_dense_replace": 1, "num_nextn_predict_layers": 1,
}  # fmt: skip
JOBS = {
    "eight GPUs": PlanJob(8, 8, gpu_named("h100"), 8, 8192, 16),
    "long sequences": PlanJob(16, 8, gpu_named("h100"), 8, 131072, 4),
    "NVL72": PlanJob(16, 4, gpu_named("gb200"), 72, 4096, 64, "mxfp8"),
}


def fastest(model: PlanModel, job: PlanJob, rates: Rates, fixed: Fixed, covered: bool) -> tuple[float, Layout] | None:
    """The fastest of all layouts that surely fit, looked at one by one."""
    usable = usable_gib(job.gpu) / (1 + MEMORY_ERROR)
    fitting = [
        layout
        for layout in Space(model, job, fixed, covered).every()
        if memory(model, layout, job).peak <= usable
    ]  # fmt: skip
    return min(
        ((step_time(model, layout, job, rates).seconds, layout) for layout in fitting), default=None, key=lambda p: p[0]
    )


@pytest.mark.sample(9)
@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("values", [DENSE, EXPERTS, LATENT], ids=["dense", "experts", "latent"])
def test_the_search_finds_the_fastest_layout_that_fits(values: dict[str, int], job: str) -> None:
    model, asked = plan_model(values), JOBS[job]
    rates = rates_of(asked.gpu, asked.precision, asked.versions)
    fixed: Fixed = {"mbs": 1} if values is not DENSE else {}
    best = fastest(model, asked, rates, fixed, covered=True)
    found = search(model, asked, rates, fixed)
    assert best is not None and found.best
    assert found.best[0].seconds == pytest.approx(best[0], rel=1e-9)


def test_layouts_are_counted_without_being_looked_at() -> None:
    model, job = plan_model(EXPERTS), JOBS["eight GPUs"]
    rates = rates_of(job.gpu, job.precision, job.versions)
    assert search(model, job, rates, {}).legal == sum(1 for _ in Space(model, job, {}, True).every())


@pytest.mark.parametrize(
    "fixed, width",
    [({"ep": 5}, 1536), ({"ep": 8, "etp": 4}, 1534), ({"ep": 64}, 1536), ({}, 1535)],
    ids=["experts that do not divide", "their width does not divide", "more than there are", "an odd width"],
)
def test_experts_that_rules_forbid_are_not_searched(fixed: Fixed, width: int) -> None:
    model, job = plan_model({**EXPERTS, "moe_intermediate_size": width}), JOBS["NVL72"]
    rates = rates_of(job.gpu, job.precision, job.versions)
    found = search(model, job, rates, fixed)
    assert found.legal == sum(1 for _ in Space(model, job, fixed, covered=not fixed).every())
    assert bool(found.best) is not bool(fixed)
    assert not any(forbidden(model, candidate.layout, job) for candidate in found.best)


@pytest.mark.parametrize("name", JOBS)
def test_the_fastest_alone_is_the_first_of_all(name: str) -> None:
    model, job = plan_model(LATENT), JOBS[name]
    rates = rates_of(job.gpu, job.precision, job.versions)
    for gpu in (job.gpu, *(job.gpu._replace(memory_bytes=size, reported_mib=0) for size in (12e9, 30e9))):
        asked = replace(job, gpu=gpu)
        whole, quick = (search(model, asked, rates, {}, 1, whole=how) for how in (True, False))
        assert (quick.fitting or quick.marked)[:1] == (whole.fitting or whole.marked)[:1]
        assert quick.legal and whole.legal


def test_a_layout_that_cannot_fit_gets_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model, asked = plan_model(LATENT), JOBS["long sequences"]
    job = replace(asked, gpu=asked.gpu._replace(memory_bytes=3e9, reported_mib=0))
    timed = []
    monkeypatch.setattr("megatron_hcp.plan.time.layer.Work.front", lambda self, layout: timed.append(layout))
    assert search(model, job, rates_of(job.gpu, "bf16", {}), {}, whole=False).legal > 1000
    assert not timed


def test_what_the_search_says_of_a_layout_is_what_the_layout_alone_is_said_to_take() -> None:
    model, job = plan_model(LATENT), JOBS["NVL72"]
    rates = rates_of(job.gpu, job.precision, job.versions)
    found = search(model, job, rates, {})
    for candidate in [*found.best, *found.frontier]:
        alone = judge(model, candidate.layout, job, rates)
        assert alone.time and alone.memory and alone.fits and not alone.rules
        assert (candidate.seconds, candidate.peak_gib) == pytest.approx((alone.time.seconds, alone.memory.peak))


def test_the_frontier_needs_less_memory_with_every_layout() -> None:
    model, job = plan_model(DENSE), JOBS["long sequences"]
    frontier = search(model, job, rates_of(job.gpu, "bf16", {}), {}).frontier
    assert len(frontier) > 1
    for faster, slower in pairwise(frontier):
        assert faster.seconds <= slower.seconds <= frontier[0].seconds * WINDOW
        assert slower.peak_gib < faster.peak_gib


def test_of_tied_layouts_the_simplest_comes_first() -> None:
    model, job = plan_model(DENSE), JOBS["long sequences"]
    best = plan_job(model, job, rates_of(job.gpu, "bf16", {}), {}).best
    fastest = min(item.time.seconds for item in best if item.time)
    tied = [item for item in best if item.time and item.time.seconds <= fastest * (1 + TIED)]
    assert len(tied) > 1 and all(item.tied for item in tied)
    axes = [sum(size > 1 for size in (item.layout.tp, item.layout.cp, item.layout.pp)) for item in tied]
    assert axes[0] == min(axes)


def test_the_first_layout_does_not_depend_on_how_many_are_shown() -> None:
    values = json.loads((ROOT / "examples" / "llama3_8b_config.json").read_text())
    model, job = plan_model(values), PlanJob(64, 8, gpu_named("h100"), 8, 131072, 64)
    shown = [plan_job(model, job, rates_of(job.gpu, "bf16", {}), {}, few).best for few in (1, 2, 8)]
    assert [len(best) for best in shown] == [1, 2, 8]
    assert shown[0][0].layout == shown[1][0].layout == shown[2][0].layout


def test_experts_without_expert_parallelism_are_first_only_where_nothing_else_is_possible() -> None:
    model, job = plan_model(EXPERTS), JOBS["eight GPUs"]
    rates = rates_of(job.gpu, "bf16", {})
    assert all(item.layout.ep > 1 for item in plan_job(model, job, rates, {}).best)
    forced = plan_job(model, job, rates, {"ep": 1, "tp": 8}).best
    assert forced and forced[0].time and "EP 1" in forced[0].time.marks[0]


@pytest.mark.slow
def test_where_nothing_fits_the_reason_and_the_nearest_change_are_given() -> None:
    model = plan_model({**DENSE, "num_hidden_layers": 126, "hidden_size": 16384, "num_attention_heads": 128})
    job = PlanJob(8, 8, gpu_named("h100"), 8, 8192, 64)
    rates = rates_of(job.gpu, "bf16", {})
    planned = plan_job(model, job, rates, {})
    assert planned.best == [] and planned.found.least and planned.found.legal > 0
    assert planned.found.least.peak_gib > usable_gib(job.gpu)
    change = remedy(model, job, rates, {})
    assert change and change.text.startswith("--gpus ")
    grown = PlanJob(int(change.text.split()[1]), 8, job.gpu, 8, 8192, 64)
    assert judge(model, change.layout, grown, rates).fits


def random_case(chance: random.Random) -> tuple[PlanModel, PlanJob, Fixed]:
    """A model, a cluster and perhaps a given axis, most of them possible."""
    pick = chance.choice
    heads = pick((8, 12, 32, 40, 64))
    values = {
        "num_hidden_layers": pick((1, 7, 24, 61)), "hidden_size": heads * 64, "num_attention_heads": heads,
        "num_key_value_heads": pick([size for size in (1, 2, 4, 8, heads) if heads % size == 0]),
        "intermediate_size": pick((1024, 5632, 11008)), "vocab_size": pick((32000, 151936)),
    }  # fmt: skip
    if chance.random() < 0.4:
        values |= {"num_experts": pick((8, 60, 128)), "num_experts_per_tok": pick((1, 4)), "moe_intermediate_size": 768}
    elif chance.random() < 0.3:
        values |= {"sliding_window": 1024}
    node = pick((1, 4, 8))
    gpu = gpu_named(pick(list(GPUS)))
    job = PlanJob(
        node * pick((1, 2, 3, 16)), node, gpu, pick((node, 8, 72)), pick((512, 4096, 65536, 100_000)),
        pick((1, 3, 16, 96)), pick(("bf16", "fp8", "mxfp8", "nvfp4")), chance.random() < 0.2,
        pick(({}, {"te": "2.4"}, {"te": "2.14", "mcore": "0.16.1"})),
    )  # fmt: skip
    fixed: Fixed = pick(({}, {}, {"tp": 2}, {"cp": 2, "cp_comm_type": "a2a"}, {"recompute": "full"}))
    return plan_model(values), job, fixed


@pytest.mark.slow
def test_random_jobs_have_a_layout_or_a_reason() -> None:
    chance = random.Random(17)
    answered = 0
    for _ in range(120):
        model, job, fixed = random_case(chance)
        rates = rates_of(job.gpu, job.precision, job.versions)
        planned = plan_job(model, job, rates, fixed, few=3)
        answered += bool(planned.best)
        for item in planned.best:
            assert item.fits and not forbidden(model, item.layout, job)
            assert all(getattr(item.layout, name) == value for name, value in fixed.items())
        if not planned.best and planned.found.legal:
            assert planned.found.least and planned.found.least.peak_gib > usable_gib(job.gpu)
    assert answered > 40


def test_an_axis_that_is_given_is_read_as_in_a_layout() -> None:
    assert parse_fixed(("tp=2 vpp=4", "hcp_sizes=4,2")) == {
        "tp": 2, "vp": 4, "hcp_sizes": (4, 2), "cp_comm_type": "a2a+p2p",
    }  # fmt: skip
    with pytest.raises(HcpError, match="--hold: found 'dp=2'"):
        parse_fixed(("dp=2",))


def test_a_layout_that_barely_fits_is_not_passed_over() -> None:
    """The bound on memory that spares most layouts a closer look is below what they need."""
    model = plan_model({**DENSE, "num_hidden_layers": 32})
    job = PlanJob(32, 8, gpu_named("h100"), 8, 131072, 128)
    rates = rates_of(job.gpu, "bf16", {})
    fixed: Fixed = {"tp": 1, "cp": 16, "cp_comm_type": "a2a+p2p", "hcp_sizes": (8, 2)}
    best, found = fastest(model, job, rates, fixed, covered=True), search(model, job, rates, fixed).best
    assert best and found
    assert found[0].seconds == pytest.approx(best[0], rel=1e-9)
    assert found[0].peak_gib > 0.75 * usable_gib(job.gpu)


def test_tp_crosses_nodes_where_pipelines_would_stand_still() -> None:
    """Eight sequences on 512 GPUs without CP: at most eight replicas, of 64 GPUs. TP 8 leaves eight stages and one
    micro-batch, an eighth of the throughput; NVIDIA measured more than that (NeMo, long sequences, 512K)."""
    model = plan_model({**DENSE, "num_hidden_layers": 32})
    job = PlanJob(512, 8, gpu_named("h100"), 8, 524288, 8)
    rates = rates_of(job.gpu, "bf16", {})
    best, inside = (plan_job(model, job, rates, {"cp": 1, **fixed}).best[0] for fixed in ({}, {"tp": 8}))
    assert best.layout.tp > 8
    assert best.time and inside.time and best.time.seconds < inside.time.seconds


def test_before_pipeline_layouts_the_layers_divide_by_all_chunks() -> None:
    model = plan_model({**DENSE, "num_hidden_layers": 30})
    job = PlanJob(32, 8, gpu_named("h100"), 8, 4096, 128)
    for release, splits in (("0.12.3", {True}), ("0.13.0", {True, False})):
        space = Space(model, replace(job, versions={"mcore": release}), {})
        sizes = {(pp, vp) for pp, chunks in space.pipelines(Layout()) for vp in chunks}
        assert {30 % (pp * vp) == 0 for pp, vp in sizes} == splits
        assert (2, 3) in sizes


def test_a_layout_at_the_end_of_the_memory_is_first_only_where_nothing_else_fits() -> None:
    model, job = plan_model(DENSE), JOBS["eight GPUs"]
    rates = rates_of(job.gpu, "bf16", {})
    first = plan_job(model, job, rates, {}).best[0]
    assert first.memory
    # The GPU that the fastest layout just fits into: 1 GiB is CUDA's, as usable_gib has it.
    just = replace(job, gpu=job.gpu._replace(reported_mib=int((first.memory.peak * 1.001 + 1) * 1024) + 1))
    search_all, alone = (plan_job(model, just, rates, fixed) for fixed in ({}, parse_fixed((str(first.layout),))))
    assert first.layout in [tight.layout for tight in search_all.found.tight]
    assert search_all.best[0].layout != first.layout == alone.best[0].layout
    tight, best = alone.best[0], search_all.best[0]
    assert "may not fit" in why_not(model, tight, best, just, rates).text
    assert "may not fit" not in why_not(model, best, tight, just, rates).text


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("values", [EXPERTS, LATENT], ids=["experts", "latent"])
def test_no_layout_holds_less_than_the_even_share_of_all_gpus(values: dict[str, int], job: str) -> None:
    """With the leanest layout's memory, anything may fit."""
    model, asked = plan_model(values), JOBS[job]
    least = min(memory(model, layout, asked).peak for layout in Space(model, asked, {"mbs": 1}).every())
    for factor, fits in ((1.0, True), (0.02, False)):
        mib = 1024 * (100 - usable_gib(asked.gpu._replace(reported_mib=100 * 1024)) + factor * least)
        assert may_fit(model, replace(asked, gpu=asked.gpu._replace(reported_mib=int(mib) + 1))) is fits
