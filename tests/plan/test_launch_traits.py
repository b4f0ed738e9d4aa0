"""What a launch says beside its layout is counted or admitted: never dropped without a word."""

from __future__ import annotations

from dataclasses import replace

import pytest

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.plan.constants import rates_for, rates_of
from megatron_hcp.plan.constants_fitted import FITTED
from megatron_hcp.plan.from_launch import job_of, layout_of
from megatron_hcp.plan.launch_traits import Traits, last_words, traits_of
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.memory.peak import stage_terms
from megatron_hcp.plan.mixers import DeltaNets
from megatron_hcp.plan.model import plan_model
from megatron_hcp.plan.time.layer import Work
from megatron_hcp.plan.time.margin import UNCOVERED
from megatron_hcp.plan.time.shapes import weights_of
from megatron_hcp.plan.time.step import step_time
from support.rules import launch

SIZES = "--num-layers 8 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --vocab-size 128256"
DENSE = plan_model({"num_layers": 8, "hidden_size": 4096, "heads": 32, "ffn_hidden_size": 14336, "vocab_size": 128256})
JOB = PlanJob(64, 8, gpu_named("h100"), 8, 8192, 256)
H100 = rates_of(JOB.gpu, "bf16", {})
ON = "--bf16 --use-distributed-optimizer --tensor-model-parallel-size 2 --sequence-parallel "


def traits(dialect: str, text: str) -> Traits:
    read = launch(dialect, text)
    facts = {name: fact.value for name, fact in read.facts.items()}
    return traits_of(facts, last_words((item.key, item.value) for item in read.reading.settings))


@pytest.mark.parametrize(
    ("dialect", "text", "is_sharded"),
    [
        ("mlm", SIZES, False),
        ("mlm", f"{SIZES} --use-distributed-optimizer", True),
        ("bridge", "model.num_layers=8", True),
        ("bridge", "ddp.use_distributed_optimizer=false", False),
        ("bridge", "optimizer.use_distributed_optimizer=true ddp.use_distributed_optimizer=false", True),
    ],
)
def test_the_optimizer_is_shared_where_the_launch_shares_it(dialect: str, text: str, is_sharded: bool) -> None:
    assert traits(dialect, text).sharded_optimizer is is_sharded


def test_an_optimizer_that_is_not_shared_takes_12_bytes_of_each_parameter() -> None:
    whole = replace(JOB, sharded_optimizer=False)
    for layout in (Layout(), Layout(tp=2, cp=4)):
        terms = stage_terms(DENSE, layout, whole, 0)
        assert terms["optimizer"] == 12 * terms["weights"] / 2
    held = weights_of(DENSE, Layout())
    elements = 8 * held.dense + 2 * held.vocab
    slower, faster = (step_time(DENSE, Layout(), job, H100).terms["optimizer"] for job in (whole, JOB))
    buffers = 3 * 4 * elements  # set to zero, and scaled: read and written
    assert slower * H100.memory_bandwidth == pytest.approx(46 * elements + buffers)
    assert faster * H100.memory_bandwidth == pytest.approx(46 * elements / 64 + buffers)


@pytest.mark.parametrize(
    ("dialect", "text", "is_fp32"),
    [
        ("mlm", "--bf16", True),  # Megatron-LM turns it on with bf16
        ("mlm", "--bf16 --grad-reduce-in-bf16", False),
        ("bridge", "ddp.grad_reduce_in_fp32=true", True),
        ("bridge", "ddp.grad_reduce_in_fp32=false", False),
        ("bridge", "mixed_precision=bf16_mixed ddp.grad_reduce_in_fp32=false", True),  # the precision's value wins
    ],
)
def test_gradients_have_the_bytes_that_the_launch_gives_them(dialect: str, text: str, is_fp32: bool) -> None:
    said = traits(dialect, text)
    assert said.fp32_gradients is is_fp32
    given = {"gpus": 8, "gpu": "h100", "seq_length": 4096, "global_batch": 8}
    terms = stage_terms(DENSE, Layout(), job_of(given, {}, {}, said), 0)
    assert terms["gradients"] == (4 if is_fp32 else 2) * terms["weights"] / 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("--use-megatron-fsdp", "FSDP has no formula"),
        ("--use-torch-fsdp2", "FSDP has no formula"),
        ("--recompute-granularity full --recompute-method block", "each layer is counted as recomputed"),
        ("--recompute-granularity full --recompute-num-layers 3", "recompute_method is not stated"),
        ("--recompute-granularity full --recompute-method mine --recompute-num-layers 3", "recompute_method mine"),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 0", "recompute_num_layers 0 is"),
        ("--recompute-granularity selective --recompute-modules mlp attn_of_mine", "recompute_modules attn_of_mine"),
        ("--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 6", "split of layers is not read"),
        ("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Ettt|tttttL", "split of layers is not"),
    ],
)
def test_what_no_formula_covers_is_marked(text: str, says: str) -> None:
    said = traits("mlm", ON + text)
    (mark,) = (*said.job_marks, *said.layout_marks)
    assert says in mark
    time = step_time(DENSE, Layout(), replace(JOB, marks=(mark,)), H100)
    assert time.band == UNCOVERED > step_time(DENSE, Layout(), JOB, H100).band and mark in time.marks


@pytest.mark.parametrize(
    "text",
    [
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
        "--recompute-granularity full --recompute-num-layers 1",
        "--recompute-granularity selective",
        "--recompute-granularity selective --recompute-modules core_attn",
        "--pipeline-model-parallel-size 2",
    ],
)
def test_what_a_formula_covers_has_no_mark(text: str) -> None:
    assert traits("mlm", ON + text) == Traits(overlaps_tp=False)


def test_full_recomputation_repeats_the_layers_that_its_method_says() -> None:
    full = f"{ON} --recompute-granularity full --recompute-num-layers 3 --recompute-method "
    assert traits("mlm", f"{full} block") == Traits(overlaps_tp=False, block_layers=3)
    assert traits("mlm", f"{full} uniform") == Traits(overlaps_tp=False, unit_layers=3)
    assert traits("mlm", full.replace("full", "selective") + "block").block_layers is None


def test_block_recomputation_takes_the_time_of_the_layers_that_it_repeats() -> None:
    def again(job: PlanJob, layout: Layout) -> float:
        return step_time(DENSE, layout, job, H100).terms["recompute"]

    full = Layout(recompute="full")
    assert again(replace(JOB, block_layers=2), full) == pytest.approx(again(JOB, full) / 4)
    assert again(replace(JOB, block_layers=9), full) == pytest.approx(again(JOB, full))
    assert again(replace(JOB, unit_layers=4), full) == again(JOB, full)
    staged = replace(full, pp=2, vp=2)  # two layers in each chunk
    assert again(replace(JOB, block_layers=1), staged) == pytest.approx(again(JOB, staged) / 2)
    assert again(replace(JOB, block_layers=2), Layout()) == 0


def test_block_recomputation_leaves_out_multi_token_prediction() -> None:
    full, block = Layout(recompute="full"), replace(JOB, block_layers=8)
    with_it = replace(DENSE, mtp=1)
    plain, more = (step_time(model, full, block, H100) for model in (DENSE, with_it))
    assert more.terms["recompute"] == plain.terms["recompute"] > 0
    assert more.seconds < step_time(with_it, full, JOB, H100).seconds


def test_sequence_parallelism_that_is_off_is_marked_where_tp_has_ranks() -> None:
    (mark,) = traits("mlm", "--bf16 --tensor-model-parallel-size 2").layout_marks
    assert "sequence parallelism is off" in mark
    assert not traits("mlm", "--bf16").layout_marks


def test_a_mark_of_the_launch_reaches_its_job() -> None:
    given = {"gpus": 8, "gpu": "h100", "seq_length": 4096, "global_batch": 8}
    assert job_of(given, {}, {}, traits("mlm", "--use-megatron-fsdp")).marks[0].startswith("FSDP")


def test_heads_of_linear_attention_that_megatron_gives_every_model_are_no_linear_attention() -> None:
    values = {"hidden_size": 4096, "heads": 32, "ffn_hidden_size": 14336, "vocab_size": 128256}
    default = {"linear_num_key_heads": 16, "linear_num_value_heads": 32}
    assert plan_model({**values, "num_layers": 8, **default}).kind_unknown == ()
    assert plan_model({**values, "num_layers": 8, **default}).mixers.nets is None
    for said in ({"num_hidden_layers": 8}, {"num_layers": 8, "attention_variant": "gated_delta_net"}):
        stated = plan_model({**values, **default, **said})
        assert stated.kind_unknown == () and stated.mixers.nets == DeltaNets(6, 16, 32, 128, 128)


def test_a_launch_that_says_no_size_is_told_the_option_in_three_parts() -> None:
    given = {"gpus": 8, "gpu": "h100", "seq_length": 4096, "global_batch": 8}
    for name, option in (("gpus", "--gpus"), ("gpu", "--gpu"), ("seq_length", "--seq-length")):
        with pytest.raises(HcpError) as refused:
            job_of({key: value for key, value in given.items() if key != name}, {}, {})
        assert refused.value.wanted and option in refused.value.do
    with pytest.raises(HcpError) as mixed:
        layout_of({"cp_comm_type": ["p2p", "a2a"]})
    assert mixed.value.wanted and "--layout" in mixed.value.do


@pytest.mark.parametrize(("kind", "once"), [("flex", True), ("alltoall", False), ("allgather", False), (None, None)])
def test_a_flexible_dispatcher_sends_a_token_once(kind: str | None, once: bool | None) -> None:
    given = {"gpu": "h100", "gpus": 8, "seq_length": 4096, "global_batch": 8}
    assert job_of(given, {"moe_token_dispatcher_type": kind}, {}).sends_once is once


@pytest.mark.parametrize(
    ("dialect", "text", "overlaps"),
    [
        ("mlm", f"{SIZES} --overlap-moe-expert-parallel-comm", True),
        ("mlm", SIZES, None),
        ("bridge", "comm_overlap.overlap_moe_expert_parallel_comm=false", False),
    ],
)
def test_a_launch_says_whether_ep_is_overlapped(dialect: str, text: str, overlaps: bool | None) -> None:
    assert traits(dialect, text).overlaps_ep is overlaps


@pytest.mark.parametrize(
    ("dialect", "text", "whole"),
    [
        ("mlm", f"{SIZES} --cuda-graph-impl full_iteration", True),
        ("mlm", f"{SIZES} --cuda-graph-impl local --cuda-graph-scope full_iteration", True),
        ("mlm", f"{SIZES} --cuda-graph-impl transformer_engine --cuda-graph-scope attn", False),
        ("mlm", SIZES, None),
        ("bridge", "model.cuda_graph_impl=full_iteration", True),
    ],
)
def test_a_launch_says_whether_one_graph_holds_an_iteration(dialect: str, text: str, whole: bool | None) -> None:
    assert traits(dialect, text).whole_graph is whole


@pytest.mark.parametrize(
    ("dialect", "text", "overlaps"),
    [
        ("mlm", f"{SIZES} {ON}", False),
        ("mlm", f"{SIZES} {ON} --tp-comm-overlap", True),
        ("bridge", "model.num_layers=8", None),
        ("bridge", "comm_overlap.tp_comm_overlap=true model.sequence_parallel=true", True),
        ("bridge", "comm_overlap.tp_comm_overlap=true model.sequence_parallel=false", False),
    ],
)
def test_userbuffers_overlap_tp_where_the_launch_turns_them_on(dialect: str, text: str, overlaps: bool | None) -> None:
    found = traits(dialect, text)
    assert found.overlaps_tp is overlaps
    job = job_of({"gpu": "h100", "gpus": 64, "seq_length": 8192, "global_batch": 256}, {}, {}, found)
    assert job.overlaps_tp is overlaps


def test_tp_is_hidden_by_userbuffers_in_one_nvlink_domain_alone() -> None:
    """Megatron-LM's default is without them, and Bridge's recipes in NVFP4 leave them off."""
    plain, on = (replace(JOB, overlaps_tp=overlaps) for overlaps in (None, True))

    def exposed(job: PlanJob, tp: int) -> float:
        return Work(DENSE, job, rates_for(job)).front(Layout(tp=tp)).tp

    assert exposed(on, 8) == pytest.approx(FITTED["tp.overlapped"] * exposed(plain, 8))
    assert exposed(on, 16) == exposed(plain, 16)
    b200 = gpu_named("b200")
    recipes = [replace(JOB, gpu=b200, precision=each, versions={"bridge": "0.4.0"}) for each in ("mxfp8", "nvfp4")]
    assert [rates_for(job).tp_overlapped < 1 for job in recipes] == [True, False]


@pytest.mark.parametrize(
    ("text", "in_place"),
    [
        ("", None),
        ("--cross-entropy-loss-fusion", None),  # native, by default
        ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl te", True),
        ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl native", False),
    ],
)
def test_the_loss_is_in_place_with_transformer_engines_fusion(text: str, in_place: bool | None) -> None:
    assert traits("mlm", f"{SIZES} {text}").loss_in_place is in_place
