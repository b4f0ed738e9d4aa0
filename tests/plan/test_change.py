"""What would change the answer, why a layout is not the first, and what a measured profile changes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from megatron_hcp.cost.cp_cost import CpTraffic, bytes_per_token, link_of
from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.cost.profile import Profile
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.plan.answer import judge
from megatron_hcp.plan.calibrated import profiled
from megatron_hcp.plan.change import flips, nearest, remedy
from megatron_hcp.plan.constants import Rates, rates_of
from megatron_hcp.plan.from_launch import check_is_said, job_of, layout_of, open_marks, with_even_batches
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.model import plan_model
from megatron_hcp.plan.overrides import overrides
from megatron_hcp.plan.ranks import rank_map
from megatron_hcp.plan.search import search
from megatron_hcp.plan.space import possible_fixed
from megatron_hcp.plan.time.layer import Work
from megatron_hcp.plan.time.step import step_time
from megatron_hcp.plan.why import why_not

LLAMA = {
    "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256,
}  # fmt: skip
MODEL = plan_model(LLAMA)
JOB = PlanJob(32, 8, gpu_named("h100"), 8, 131072, 32)
RATES = rates_of(JOB.gpu, "bf16", {})
RING, LEVELS = Layout(tp=2, cp=8), Layout(tp=2, cp=8, cp_comm_type="a2a+p2p", hcp_sizes=(4, 2))


def test_at_the_bandwidth_of_a_flip_both_layouts_take_as_long() -> None:
    flip = flips(MODEL, LEVELS, [RING], JOB, RATES)[0]

    def at(gb_per_s: float) -> Rates:
        if flip.link == "NVLink":
            return replace(RATES, nvlink=gb_per_s * 1e9)
        return replace(RATES, network=gb_per_s * 1e9)

    ring, levels = (step_time(MODEL, layout, JOB, at(flip.at)).seconds for layout in (RING, LEVELS))
    assert ring == pytest.approx(levels, rel=1e-4)
    beyond = at(flip.at * (0.9 if flip.side == "below" else 1.1))
    assert step_time(MODEL, RING, JOB, beyond).seconds < step_time(MODEL, LEVELS, JOB, beyond).seconds


def test_the_nearest_layout_that_fits_differs_by_one_axis() -> None:
    _differs_by_one_axis(Layout(tp=2, cp=4))


def test_where_twice_an_axis_is_not_enough_the_next_factor_is_tried() -> None:
    assert _differs_by_one_axis(Layout(tp=2, recompute="full"), replace(JOB, seq_length=1 << 19)).cp > 2


def _differs_by_one_axis(large: Layout, job: PlanJob = JOB) -> Layout:
    assert not judge(MODEL, large, job, RATES).fits
    found = nearest(MODEL, large, job, RATES)
    assert found and found.fits and not found.rules
    changed = [axis for axis in ("tp", "cp", "pp", "vp", "mbs", "recompute")
               if getattr(found.layout, axis) != getattr(large, axis)]  # fmt: skip
    assert len(changed) == 1
    return found.layout


def test_why_not_says_what_is_lost_and_to_what() -> None:
    best = judge(MODEL, RING, JOB, RATES)
    full = judge(MODEL, replace(RING, recompute="full"), JOB, RATES)
    again = why_not(MODEL, full, best, JOB, RATES)
    assert again.kind == "slower" and again.term == "recompute"
    assert why_not(MODEL, best, best, JOB, RATES).kind == "tied"
    assert why_not(MODEL, best, full, JOB, RATES).kind == "faster"


@pytest.mark.parametrize(("layout", "fits"), [(Layout(tp=2, cp=4), True), (Layout(), False)])
def test_why_not_says_whether_recomputation_makes_a_layout_fit(layout: Layout, fits: bool) -> None:
    best, other = (judge(MODEL, item, JOB, RATES) for item in (RING, layout))
    assert not other.fits
    reason = why_not(MODEL, other, best, JOB, RATES)
    again = reason.recomputed
    assert reason.kind == "memory" and again and again.fits is fits and again.memory and again.time and best.time
    assert replace(again.layout, recompute="none") == layout != again.layout
    if fits:
        tried = [judge(MODEL, replace(layout, recompute=kind), JOB, RATES) for kind in ("selective", "full")]
        assert again.time.seconds == min(item.time.seconds for item in tried if item.fits and item.time)
        slower = again.time.seconds / best.time.seconds - 1
        assert f"fits at {again.memory.peak:.1f} GiB and takes {again.time.seconds:.4g} s, {slower:.1%}" in reason.text
    else:
        assert again.layout.recompute == "full" and f"still {again.over_gib:.1f} GiB over" in reason.text
    assert other.memory
    activations = sum(held for term, held in other.memory.terms.items() if term.startswith("kept: "))
    assert f"activations {activations:.3g}" in reason.text


def profile_file(folder: Path, **changed: float) -> str:
    """A profile of a machine that is `changed` times as slow as the fitted rates."""
    layout, one = Layout(), replace(JOB, seq_length=8192)
    layer = Work(MODEL, one, RATES).units(layout).dense
    each = bytes_per_token(32, 8, 128, 128)
    near, far = link_of(each, RATES.nvlink), link_of(each, RATES.network / changed.get("network", 1.0))
    near, far = (link._replace(kv_s=32 * link.kv_s, a2a_s=32 * link.a2a_s) for link in (near, far))
    profile = Profile(
        "H100", 32 * (layer.gemm + layer.memory_bound) / 8192 * changed.get("linear", 1.0),
        32 * layer.attention / 8192**2 * changed.get("attention", 1.0), CpTraffic("p2p", near, far, 8),
    )  # fmt: skip
    path = folder / "profile.json"
    path.write_text(json.dumps(profile.as_json()))
    return str(path)


def test_a_profile_of_the_fitted_machine_changes_nothing(tmp_path: Path) -> None:
    rates, _ = profiled(RATES, profile_file(tmp_path), MODEL, JOB)
    assert rates.gemm_flops == pytest.approx(RATES.gemm_flops)
    assert rates.attention_flops == pytest.approx(RATES.attention_flops)
    assert (rates.nvlink, rates.network) == pytest.approx((RATES.nvlink, RATES.network))


def test_a_profile_changes_each_rate_by_what_it_measured_of_it(tmp_path: Path) -> None:
    rates, _ = profiled(RATES, profile_file(tmp_path, attention=2.0, network=4.0), MODEL, JOB)
    assert rates.gemm_flops == pytest.approx(RATES.gemm_flops)
    assert RATES.attention_flops / 2 < rates.attention_flops < RATES.attention_flops / 1.5
    assert rates.network == pytest.approx(RATES.network / 4)


def test_a_profile_of_another_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HcpError, match="linear_s is 10 times"):
        profiled(RATES, profile_file(tmp_path, linear=10.0), MODEL, JOB)


def test_a_launchs_facts_become_a_layout_and_a_job() -> None:
    facts = {
        "tp": 2, "cp": 8, "pp": 1, "vpp": None, "ep": 1, "etp": 2, "cp_comm_type": ("a2a", "a2a"), "world_size": 32,
        "gpus_per_node": 8, "arch": "sm100", "seq_length": 8192, "global_batch_size": 64, "micro_batch_size": 2,
        "recompute_granularity": "full", "fp8": "hybrid", "fp8_recipe": "mxfp8",
    }  # fmt: skip
    assert layout_of(facts) == Layout(tp=2, cp=8, cp_comm_type="a2a", mbs=2, recompute="full")
    job = job_of({}, facts, {})
    assert (job.world_size, job.gpu.name, job.precision, job.global_batch) == (32, "b200", "mxfp8", 64)
    assert job_of({"gpus": 64, "gpu": "gb200"}, facts, {}).world_size == 64
    with pytest.raises(HcpError, match="a2a, p2p on different layers"):
        layout_of({**facts, "cp_comm_type": ("p2p", "a2a")})


def test_micro_batches_that_tokens_fill_divide_the_batch() -> None:
    """verl's rearrange_micro_batches balances any number of them: no published launch is illegal for it."""
    facts = {"tp": 2, "use_dynamic_bsz": True, "ppo_max_token_len_per_gpu": 30720, "global_batch_size": 32}
    job = job_of({"gpus": 8, "gpu": "h100", "seq_length": 10240}, facts, {})
    assert layout_of(facts, 10240).mbs == 3
    assert layout_of(with_even_batches(facts, job), 10240).mbs == 2
    said = {**facts, "micro_batch_size": 3}
    assert with_even_batches(said, job) == said
    assert with_even_batches({**facts, "tp": 16}, job) == {**facts, "tp": 16}
    assert with_even_batches({**facts, "ppo_max_token_len_per_gpu": 10**30}, job)["micro_batch_size"] == 8


def test_nemo_rl_recomputes_layers_where_its_switch_alone_is_known() -> None:
    """setup.py: recompute_granularity of a configuration that lacks it is full."""
    assert layout_of({"activation_checkpointing": True}).recompute == "full"
    assert layout_of({"activation_checkpointing": True, "recompute_granularity": "selective"}).recompute == "selective"
    assert layout_of({"activation_checkpointing": False}).recompute == "none"


@pytest.mark.parametrize(("gpu", "precision"), [("a100", "fp8"), ("h100", "mxfp8"), ("h200", "nvfp4")])
def test_a_precision_that_the_gpu_does_not_compute_is_refused(gpu: str, precision: str) -> None:
    given = {"gpus": 8, "gpu": gpu, "seq_length": 4096, "global_batch": 8}
    with pytest.raises(HcpError, match=f"found {precision}, which {gpu} does not compute; wanted bf16"):
        job_of({**given, "precision": precision}, {}, {})
    assert job_of({**given, "gpu": "b200", "precision": precision}, {}, {}).precision == precision


def test_what_a_recipe_leaves_open_of_its_layout_is_said_with_the_reason() -> None:
    unknown = {
        "tp": "it differs between releases",
        "ep": "it differs between releases",
        "fp8": "it differs",
        "mtp": "x",
    }
    assert open_marks(unknown, {}) == (
        "tp, ep: not known, taken for the default; it differs between releases",
        "precision: not known, taken for the default; it differs",
    )
    assert len(open_marks(unknown, {"precision": "bf16"})) == 1 and not open_marks({"mtp": "x"}, {})


@pytest.mark.parametrize(
    ("facts", "unknown", "text"),
    [
        ({}, {"ffn_hidden_size": "the config.json decides"}, "found no ffn_hidden_size in the launch;"),
        ({"num_experts": 8}, {"moe_router_topk": "so does it"}, "found no moe_router_topk in the launch;"),
        (
            {"vocab_size": None, "model_name": "Qwen/Qwen3-8B"},
            {},
            "found no vocab_size of Qwen/Qwen3-8B in the launch;",
        ),
    ],
)
def test_a_size_that_the_launch_leaves_to_a_config_is_asked_for(facts: dict, unknown: dict, text: str) -> None:
    given = {"gpus": 8, "gpu": "h100", "seq_length": 4096, "global_batch": 8}
    whole = {"num_layers": 8, "hidden_size": 1024, "heads": 8, "vocab_size": 32000}
    check_is_said(given, whole, {}, True, False)
    with pytest.raises(HcpError, match=text):
        check_is_said(given, {**whole, **facts}, unknown, True, False)
    check_is_said(given, {**whole, **facts}, unknown, True, True)


def test_stages_beyond_layers_embedding_and_loss_are_refused() -> None:
    assert possible_fixed(MODEL, {"pp": 34}) == {"pp": 34}  # 32 layers
    with pytest.raises(HcpError, match="for 32 layers; wanted at most 34"):
        possible_fixed(MODEL, {"pp": 35})
    with pytest.raises(HcpError, match="found 36 pipeline stages"):
        possible_fixed(MODEL, {"pp": 12, "vp": 3})


def test_a_stage_that_embedding_or_loss_has_to_itself_is_searched_where_it_is_asked_for() -> None:
    job = replace(JOB, world_size=34, global_batch=34, seq_length=4096)
    found = search(MODEL, job, RATES, {"pp": 34}, 1)
    assert found.best and found.best[0].layout.pp == 34
    assert not any(item.layout.pp == 34 for item in search(MODEL, job, RATES, {}, 50).best)


def test_overrides_are_in_the_words_of_each_framework() -> None:
    layout = replace(LEVELS, pp=2, vp=3, recompute="full")
    bridge, mlm, verl = (overrides(MODEL, layout, JOB, dialect) for dialect in ("bridge", "mlm", "verl"))
    assert "model.hierarchical_context_parallel_sizes=[4,2]" in bridge
    assert any(word.startswith("model.pipeline_model_parallel_layout=E") for word in bridge)  # 32 layers, 6 chunks
    assert "model.recompute_num_layers=1" in bridge
    assert mlm[mlm.index("--hierarchical-context-parallel-sizes") + 1 :][:2] == ["4", "2"]
    assert "--sequence-parallel" in mlm and "--recompute-method" in mlm
    assert verl == []  # HCP010
    ring = overrides(MODEL, replace(LEVELS, cp_comm_type="p2p", hcp_sizes=None), JOB, "verl")
    assert "actor_rollout_ref.actor.megatron.context_parallel_size=8" in ring
    assert "++actor_rollout_ref.actor.megatron.override_transformer_config.cp_comm_type=p2p" in ring


def test_the_rank_map_is_megatron_cores_order() -> None:
    axes = {axis.name: axis for axis in rank_map(replace(LEVELS, pp=2), JOB)}
    assert [(axes[name].size, axes[name].stride) for name in ("tp", "cp", "cp inner", "cp outer", "pp")] == [
        (2, 1), (8, 2), (4, 2), (2, 8), (2, 16),
    ]  # fmt: skip
    assert (axes["cp inner"].reach, axes["cp outer"].reach) == ("node", "network")


@pytest.mark.parametrize(
    ("world", "length", "batch", "text"), [(4, 5, 15, "--global-batch 16"), (8, 4097, 1, "--seq-length 4096")]
)
def test_where_the_length_or_the_batch_makes_every_layout_illegal_the_nearest_other_one_is_named(
    world: int, length: int, batch: int, text: str
) -> None:
    """One layer and seven heads leave neither TP nor PP: each rank has a sequence, or CP cuts one in pieces."""
    sizes = {"num_attention_heads": 7, "num_key_value_heads": 7, "hidden_size": 896, "num_hidden_layers": 1}
    model = plan_model({**LLAMA, **sizes})
    job = replace(JOB, world_size=world, seq_length=length, global_batch=batch)
    found = search(model, job, RATES, {})
    assert not found.legal
    change = remedy(model, job, RATES, {})
    assert change and change.text == text
    size = int(text.split()[1])
    asked = replace(job, seq_length=size) if "length" in text else replace(job, global_batch=size)
    assert judge(model, change.layout, asked, RATES).fits


def test_where_one_change_is_not_enough_two_are_named() -> None:
    """Three GPUs do not divide by TP 2; without it, CP 3 cuts sequences into six pieces."""
    sizes = {"num_attention_heads": 7, "num_key_value_heads": 7, "hidden_size": 896, "num_hidden_layers": 1}
    model, job = plan_model({**LLAMA, **sizes}), replace(JOB, world_size=3, global_batch=4, seq_length=4097)
    change = remedy(model, job, RATES, {"tp": 2})
    assert change and change.text == "leave out --hold tp and take --seq-length 4098"
    assert judge(model, change.layout, replace(job, seq_length=4098), RATES).fits


@pytest.mark.slow
def test_a_sequence_too_long_for_any_number_of_gpus_is_shortened() -> None:
    """Latent attention has no CP before TE 2.5: TP 4 is all that cuts a sequence in pieces."""
    latent = {
        "num_hidden_layers": 2, "hidden_size": 768, "num_attention_heads": 12, "num_key_value_heads": 12,
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 201088,
    }  # fmt: skip
    model = plan_model({**LLAMA, **latent})
    job = replace(JOB, world_size=8, seq_length=1 << 20, global_batch=8, versions={"te": "2.4"})
    change = remedy(model, job, RATES, {})
    assert change and change.text == f"--seq-length {1 << 19}"
    assert judge(model, change.layout, replace(job, seq_length=1 << 19), RATES).fits
    assert not judge(model, change.layout, job, RATES).fits
