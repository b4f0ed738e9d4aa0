"""Phases of a reinforcement-learning step: what is resident in each, the logits' copies, and which fails first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Setting
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.model import plan_model
from megatron_hcp.plan.phases.change import first_failure
from megatron_hcp.plan.phases.job import (
    ALL,
    CRITIC,
    LOG_PROB,
    PHASES,
    REFERENCE,
    ROLLOUT,
    START,
    SYNC,
    UPDATE,
    USED,
    Engine,
    Logits,
    RlJob,
)  # fmt: skip
from megatron_hcp.plan.phases.memory import CONTEXT, FRAGMENTED, Phase, phases_of
from megatron_hcp.plan.phases.read import rl_job

MODEL = plan_model(
    {
        "num_layers": 28, "hidden_size": 3584, "num_attention_heads": 28, "num_query_groups": 4, "vocab_size": 152064,
        "ffn_hidden_size": 18944, "gated_linear_unit": True, "add_qkv_bias": True, "add_bias_linear": False,
        "normalization": "RMSNorm", "untie_embeddings_and_output_weights": True,
    },
    "Qwen/Qwen2.5-7B",
)  # fmt: skip
LAYOUT = Layout(tp=2)
JOB = PlanJob(8, 8, gpu_named("h100"), 8, 10240, 512)
ENGINE = Engine("vllm", 0.6)
VERL = RlJob("verl", 10240, 10240, 10240, engine=ENGINE, offloads=ALL, own_reference=True, logits=Logits(fused=True))
A = "actor_rollout_ref."


def named(rl: RlJob, job: PlanJob = JOB, layout: Layout = LAYOUT) -> dict[str, Phase]:
    return {item.name: item for item in phases_of(MODEL, layout, job, rl)}


def read(dialect: str, *words: str, layout: Layout = LAYOUT, longest: int = 10240) -> RlJob:
    said = [word.partition("=") for word in words]
    settings = [Setting(key, value if sign else []) for key, sign, value in said]
    return rl_job(dialect, settings, layout, longest)


def test_terms_of_a_phase_sum_to_its_peak_and_stand_in_a_step_s_order() -> None:
    found = phases_of(MODEL, LAYOUT, JOB, VERL._replace(critic_tokens=4096))
    assert [item.name for item in found] == list(PHASES)
    for item in found:
        assert sum(item.terms.values()) == pytest.approx(item.peak)


def test_what_is_not_moved_to_the_host_is_in_every_phase() -> None:
    moved, kept = named(VERL), named(VERL._replace(offloads=frozenset(), keeps_reference=True))
    assert "optimizer" not in moved[LOG_PROB].terms and "gradients" not in moved[LOG_PROB].terms
    for name in kept.keys() - {START}:
        assert {"weights", "gradients", "optimizer", "reference weights"} <= set(kept[name].terms), name
    assert kept[ROLLOUT].peak > moved[ROLLOUT].peak + 30


@pytest.mark.parametrize(
    ("framework", "phase", "held"),
    [
        ("verl", REFERENCE, set()), ("verl", LOG_PROB, {"weights"}), ("nemo-rl", REFERENCE, {"weights"}),
        ("slime", LOG_PROB, {"weights", "gradients", "optimizer"}), ("slime", SYNC, set()),
        ("ms-swift", SYNC, {"weights", "gradients", "optimizer"}), ("nemo-rl", ROLLOUT, set()),
    ],
)  # fmt: skip
def test_each_framework_moves_the_actor_at_its_own_times(framework: str, phase: str, held: set[str]) -> None:
    rl = VERL._replace(framework=framework, own_reference=False)
    assert rl.resident(phase) == held
    assert set(USED[framework]) <= set(PHASES)


def test_logits_of_a_log_probability_are_so_many_bytes_for_each_token_and_word() -> None:
    rl = RlJob("nemo-rl", 4096, 65536)
    whole = named(rl)[LOG_PROB].terms["logits"] * (1 << 30)
    vocabulary = 152064 / 2
    assert whole == pytest.approx(65536 * (12 * vocabulary + 3584 * 4), rel=0.02)
    chunked = named(rl._replace(logits=Logits(chunk=1024, deferred=True)))[LOG_PROB].terms["logits"] * (1 << 30)
    assert chunked == pytest.approx(65536 * (2 * vocabulary + 3584 * 4) + 1024 * 12 * vocabulary, rel=0.02)


def test_one_fp32_tensor_of_logits_is_what_an_out_of_memory_message_asked_for() -> None:
    """slime's issue 1951: 205,280 tokens on two ranks of Qwen3's vocabulary asked for 58.15 GiB."""
    tokens = 205280
    plain = named(RlJob("slime", tokens, release="0.3.0"))[UPDATE]
    fused = named(RlJob("slime", tokens, logits=Logits(fused=True)))[UPDATE]
    copies = (plain.peak - fused.peak) / (1 + FRAGMENTED) / 58.15
    assert 3.7 < copies < 4.0  # four, less what the fused loss holds itself


def test_an_entropy_term_keeps_another_softmax() -> None:
    rl = RlJob("verl", 16384)
    more = named(rl._replace(logits=Logits(entropy=True)))[UPDATE].peak - named(rl)[UPDATE].peak
    assert more == pytest.approx(4 * 16384 * 152064 / 2 / (1 << 30) * (1 + FRAGMENTED), rel=0.01)


def test_the_engine_has_its_share_in_the_rollout_and_its_weights_when_they_are_renewed() -> None:
    found = named(VERL)
    assert found[ROLLOUT].terms["engine"] == pytest.approx(0.6 * 81559 / 1024 + CONTEXT)
    two, four = (named(VERL._replace(engine=ENGINE._replace(gpus=gpus)))[SYNC].terms["engine"] for gpus in (2, 4))
    assert two - four == pytest.approx(7.6e9 / 2 / (1 << 30), rel=0.02)  # a quarter of 7.6e9 parameters of two bytes


def test_an_engine_that_never_sleeps_takes_its_share_in_every_phase() -> None:
    awake = named(VERL._replace(engine=ENGINE._replace(sleeps=False)))
    share = pytest.approx(0.6 * 81559 / 1024 + CONTEXT)
    assert all(item.terms["engine"] == share for name, item in awake.items() if name != START)


def test_a_step_without_an_engine_on_its_gpus_has_neither_rollout_nor_synchronization() -> None:
    assert list(named(RlJob("slime", 4096, 4096))) == [START, LOG_PROB, UPDATE]


def test_published_runs_of_7b_on_8_h100_are_told_apart() -> None:
    """verl_megatron_practice, grpo_qwen2.5_7b.csv: rows 10 (out of memory) and 2 and 14 (ran)."""
    without = VERL._replace(offloads=frozenset(), keeps_reference=True)
    failing = phases_of(MODEL, LAYOUT, JOB, without)
    failure = first_failure(MODEL, LAYOUT, JOB, without, failing)
    assert failure is not None and failure.phase.name == ROLLOUT
    for rl, layout in ((without, Layout(tp=4)), (VERL, replace(LAYOUT, recompute="full"))):
        assert first_failure(MODEL, layout, JOB, rl, phases_of(MODEL, layout, JOB, rl)) is None


def test_the_setting_that_is_named_makes_every_phase_fit() -> None:
    without = VERL._replace(offloads=frozenset(), keeps_reference=True)
    failure = first_failure(MODEL, LAYOUT, JOB, without, phases_of(MODEL, LAYOUT, JOB, without))
    assert failure is not None
    key, _, share = failure.setting.rpartition("=")
    assert key == f"{A}rollout.gpu_memory_utilization"
    mended = without._replace(engine=ENGINE._replace(share=float(share)))
    assert all(item.fits for item in phases_of(MODEL, LAYOUT, JOB, mended))


def test_where_no_single_setting_helps_none_is_named() -> None:
    job, rl = replace(JOB, world_size=1), RlJob("slime", 1 << 20, 1 << 20)
    layout = Layout()
    failure = first_failure(MODEL, layout, job, rl, phases_of(MODEL, layout, job, rl))
    assert failure is not None and failure.setting == ""


def test_moments_come_with_the_first_update_so_that_it_fails_before_a_log_probability() -> None:
    """miles, test_qwen3_30B_A3B_p2p.py: out of memory with the optimizer's state, in phases after the first update."""
    job, layout, rl = replace(JOB, world_size=1), Layout(), RlJob("slime", 1024, 1024)
    found = [item for item in phases_of(MODEL, layout, job, rl) if item.name != START]
    assert not any(item.fits for item in found)
    big = [item._replace(usable=item.peak - item.terms["optimizer"] / 2) for item in found]
    failure = first_failure(MODEL, layout, job, rl, big)
    assert failure is not None and failure.phase.name == UPDATE


def test_verl_is_read_with_its_defaults() -> None:
    plain = read("verl", "algorithm.adv_estimator=grpo")
    assert (plain.update_tokens, plain.log_prob_tokens, plain.reference_tokens, plain.critic_tokens) == (
        10240,
        10240,
        0,
        0,
    )
    assert plain.engine == Engine("vllm", 0.5, 2, sequences=256) and plain.offloads == frozenset()
    words = ("use_dynamic_bsz=True", "ppo_max_token_len_per_gpu=20480", "megatron.param_offload=True")
    moved = read("verl", "algorithm.adv_estimator=grpo", *(f"{A}actor.{word}" for word in words))
    assert moved.update_tokens == moved.log_prob_tokens == 20480
    assert moved.offloads == {"weights", "gradients"} and not moved.keeps_reference
    assert read("verl", "critic.ppo_micro_batch_size_per_gpu=2").critic_tokens == 20480


def test_a_sequence_longer_than_the_budget_is_alone_in_its_micro_batch() -> None:
    words = (f"{A}actor.use_dynamic_bsz=True", f"{A}actor.ppo_max_token_len_per_gpu=1024")
    assert read("verl", *words, layout=Layout(cp=2)).update_tokens == 5120
    assert (
        read(
            "slime", "use_dynamic_batch_size", "max_tokens_per_gpu=1024", "rollout_max_response_len=8192"
        ).update_tokens
        == 8192
    )


def test_nemo_rl_counts_sequences_and_trains_alone_in_sft() -> None:
    words = ("grpo.num_prompts_per_step=64", "policy.train_micro_batch_size=2", "policy.logprob_batch_size=4")
    found = read("nemo-rl", *words, longest=4096, layout=Layout(cp=2))
    assert (found.update_tokens, found.log_prob_tokens, found.offloads) == (4096, 8192, ALL)
    packed = (*words, "policy.sequence_packing.enabled=true", "policy.sequence_packing.train_mb_tokens=16384")
    assert read("nemo-rl", *packed, longest=4096, layout=Layout(cp=2)).update_tokens == 8192
    alone = read("nemo-rl", "policy.train_micro_batch_size=1")
    assert [alone.has(name) for name in PHASES] == [True, False, False, False, False, False, True]
    assert read("nemo-rl", "ppo.num_prompts_per_step=32").has(CRITIC)


def test_slime_and_ms_swift_say_themselves_what_they_move() -> None:
    colocated = read("slime", "colocate", "sglang_mem_fraction_static=0.7", "use_kl_loss")
    assert colocated.offloads == ALL and colocated.engine == Engine("sglang", 0.7) and colocated.has(REFERENCE)
    apart = read("slime")
    assert apart.engine is None and apart.offloads == frozenset()
    words = ("rlhf_type=grpo", "use_vllm=true", "vllm_mode=colocate", "offload_model=true", "sleep_level=2", "beta=0.0")
    swift = read("ms-swift", *words, "max_length=1024", "max_completion_length=512")
    assert swift.update_tokens == 1536 and swift.offloads == {"weights", "gradients"} and not swift.has(REFERENCE)


def test_values_that_make_no_sense_have_the_default() -> None:
    odd = read("verl", f"{A}rollout.gpu_memory_utilization=lots", f"{A}actor.ppo_micro_batch_size_per_gpu=-3")
    assert odd.engine is not None and odd.engine.share == 0.5 and odd.update_tokens == 10240


@pytest.mark.parametrize("dialect", ["mlm", "bridge", ""])
def test_a_launch_without_such_phases_is_refused_in_one_line(dialect: str) -> None:
    with pytest.raises(HcpError, match="--phases"):
        read(dialect)
    with pytest.raises(HcpError, match="rlhf_type"):
        read("ms-swift", "rlhf_type=dpo")
    with pytest.raises(HcpError, match="DTensor trains"):
        read("nemo-rl", "policy.megatron_cfg.enabled=false")
    with pytest.raises(HcpError, match="fsdp trains"):
        rl_job("verl", (), LAYOUT, 8192, {"strategy": "fsdp"})


def test_a_critic_has_one_output_and_is_whole_on_the_gpu_while_it_trains() -> None:
    moved = named(VERL._replace(critic_tokens=10240, critic_offloads=ALL))
    assert {"critic weights", "critic gradients", "critic optimizer"} <= set(moved[CRITIC].terms)
    assert not any(name.startswith("critic") for name in moved[UPDATE].terms)
    kept = named(VERL._replace(critic_tokens=10240))
    assert "critic optimizer" in kept[UPDATE].terms
    large = named(RlJob("verl", 1 << 20, critic_tokens=1 << 20))
    assert large[UPDATE].peak - large[CRITIC].peak > 8 * 152064 / 2 * (1 << 20) / (1 << 30) * 0.8


def mended(rl: RlJob, job: PlanJob, usable: float) -> str:
    """The setting after which all phases take no more than `usable` GiB."""
    gpu = job.gpu._replace(reported_mib=round((usable + 1) * 1024))
    job = replace(job, gpu=gpu)
    failure = first_failure(MODEL, LAYOUT, job, rl, phases_of(MODEL, LAYOUT, job, rl))
    assert failure is not None
    return failure.setting


def test_each_change_is_named_where_it_alone_makes_the_step_fit() -> None:
    alone = RlJob("verl", 10240, 10240, 10240, own_reference=True, keeps_reference=True, offloads=ALL)
    fused = alone._replace(logits=Logits(fused=True))
    at = {name: item.peak for name, item in named(fused).items()}
    without = {name: item.peak for name, item in named(fused._replace(keeps_reference=False)).items()}
    assert mended(fused, JOB, (at[UPDATE] + without[UPDATE]) / 2) == f"{A}ref.megatron.param_offload=True"
    long = RlJob("slime", 65536, 65536, least_tokens=4096)
    short = named(long._replace(update_tokens=4096, log_prob_tokens=4096))
    job = replace(JOB, world_size=2)
    assert mended(long, JOB, max(item.peak for item in short.values()) + 1) == (
        "--max-tokens-per-gpu 4096 --log-probs-max-tokens-per-gpu 4096"
    )
    few = RlJob("slime", 1024, 1024)
    held = named(few, replace(job, optimizer_bytes=0))
    assert (
        mended(few, job, max(item.peak for item in held.values()) + 0.5)
        == "--optimizer-cpu-offload --use-precision-aware-optimizer"
    )
