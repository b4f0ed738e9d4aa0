"""What is on the GPU beside torch's tensors of the trainer, and what of the trainer is on it."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.launch.fact import Dialect, Setting
from megatron_hcp.launch.load import LoadOptions
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.model import plan_model
from megatron_hcp.plan.phases.change import first_failure
from megatron_hcp.plan.phases.job import ALL, CRITIC, LOG_PROB, REFERENCE, ROLLOUT, SYNC, UPDATE, Engine, RlJob
from megatron_hcp.plan.phases.memory import Phase, phases_of
from megatron_hcp.plan.phases.read import rl_job
from megatron_hcp.plan.phases.unsure import unsure_of
from megatron_hcp.plan.question import question_of

MODEL = plan_model({"num_layers": 32, "hidden_size": 4096, "heads": 32, "ffn_hidden_size": 14336, "vocab_size": 128256})
JOB = PlanJob(8, 8, gpu_named("h100"), 8, 8192, 64)
ONE = Engine("vllm", 0.5)
VERL = RlJob("verl", 8192, 8192, 8192, engine=ONE, offloads=ALL)
A, M, N = "actor_rollout_ref.", "policy.megatron_cfg.", "policy.megatron_cfg.optimizer."
RESERVED = 1.0
"""GiB of CUDA's context and NCCL's buffers that no phase may use: `usable_gib`."""


def named(rl: RlJob, job: PlanJob = JOB) -> dict[str, Phase]:
    return {item.name: item for item in phases_of(MODEL, Layout(tp=2), job, rl)}


def read(dialect: str, release: str = "", **said: Any) -> RlJob:
    """Of settings, in whose names two underscores stand for a dot."""
    return rl_job(
        dialect,
        [Setting(k.replace("__", "."), v) for k, v in said.items()],
        Layout(),
        8192,
        {dialect.replace("-", "_"): release},
    )


def asleep(engine: Engine) -> float:
    return named(VERL._replace(engine=engine))[UPDATE].terms["engine"]


def test_a_trainer_holds_what_out_of_memory_messages_say_that_torch_does_not() -> None:
    """Memory of the process less what torch has: slime 1951 and 1767, NeMo-RL 3244; with DeepEP verl 5840."""
    plain = fmean((88.83 - 82.55 - 2.06, 48.84 - 44.61 - 0.41, 44.95 - 41.69))
    found = named(VERL)[UPDATE].terms["communicators"]
    assert found + RESERVED == pytest.approx(plain, abs=0.05)
    with_deepep = named(VERL._replace(deepep=True))[UPDATE].terms["communicators"]
    assert with_deepep + RESERVED == pytest.approx(65.27 - 55.13 - 0.41, abs=0.05)
    assert "communicators" not in named(VERL, replace(JOB, world_size=1))[UPDATE].terms


def test_deepep_is_read_whatever_the_framework_calls_it() -> None:
    assert read("slime", moe_enable_deepep=[]).deepep
    key = f"{A}actor.megatron.override_transformer_config.moe_enable_deepep"
    assert rl_job("verl", [Setting(key, True)], Layout(), 8192).deepep
    assert not read("nemo-rl", policy__megatron_cfg__moe_enable_deepep="false").deepep


def test_slime_destroys_its_groups_while_it_sleeps_since_its_first_release() -> None:
    rl = RlJob("slime", 8192, 8192, engine=Engine("sglang", 0.5, 2), offloads=ALL)
    now, then = named(rl), named(rl._replace(release="0.0.1"))
    assert named(rl._replace(release="0.1.0"))[ROLLOUT].terms == now[ROLLOUT].terms
    assert set(now[ROLLOUT].terms) == {"engine"} and "communicators" in now[UPDATE].terms
    left = now[UPDATE].terms["communicators"] + now[UPDATE].terms["workspaces"]
    assert then[ROLLOUT].peak - now[ROLLOUT].peak == pytest.approx(left)


def test_weights_that_are_renewed_are_no_more_than_the_engine_s_share() -> None:
    """The share has the weights and the KV cache: slime's engines read 8-bit and 4-bit checkpoints."""
    big = plan_model(
        {"num_layers": 90, "hidden_size": 8192, "heads": 64, "ffn_hidden_size": 28672, "vocab_size": 128256}
    )
    rl = RlJob("slime", 8192, 8192, engine=Engine("sglang", 0.5, 2), offloads=ALL)
    found = next(item for item in phases_of(big, Layout(tp=8), JOB, rl) if item.name == SYNC)
    assert found.terms["engine"] - asleep(Engine("sglang", 0.5, 2)) == pytest.approx(0.5 * 81559 / 1024)


def test_a_vllm_on_several_gpus_keeps_more_while_it_sleeps() -> None:
    """NeMo-RL 223, vLLM 11743 and 28714 on one GPU; NeMo-RL 223 twice and 2619, vLLM 47654, verl 5840 and two of
    NeMo-RL's FUSEDATTN_TEST_REPORT.md on several."""
    assert asleep(ONE) == pytest.approx(fmean((774 / 1024, 79.22 - 78.29, 1.19)), abs=0.05)
    several = fmean((2440 / 1024, 7392 / 1024, 4.11, 7040 / 1024, 7.41, 6.97, 9.12))
    assert asleep(ONE._replace(gpus=4)) == pytest.approx(several, abs=0.05)


@pytest.mark.parametrize(
    ("dialect", "release", "said", "grows"),
    [
        ("verl", "", {}, True), ("verl", "0.6.0", {}, True), ("verl", "0.5.0", {}, False), ("slime", "", {}, False),
        ("nemo-rl", "", {}, False), ("nemo-rl", "0.3.1", {}, True),
        ("nemo-rl", "0.3.1", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"}, False),
        ("nemo-rl", "", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, True),
    ],
)  # fmt: skip
def test_segments_that_grow_lose_little_between_tensors(
    dialect: str, release: str, said: dict[str, str], grows: bool
) -> None:
    """verl's update_weights turns them on since 0.6; NeMo-RL's worker did until 0.3, and takes them from env_vars."""
    settings = [Setting(f"{M}env_vars.{name}", value) for name, value in said.items()]
    rl = rl_job(dialect, settings, Layout(), 8192, {dialect.replace("-", "_"): release})
    assert rl.expands is grows
    terms = named(rl._replace(engine=None))[UPDATE].terms
    share = terms["fragmentation"] / (sum(terms.values()) - terms["fragmentation"] - terms["communicators"])
    assert share < 0.02 if grows else share > 0.04


def test_nemo_rl_stages_weights_in_a_share_of_what_is_free() -> None:
    """NRL_REFIT_BUFFER_MEMORY_RATIO is 0.3 of what is free before the first weight is gathered."""
    rl = RlJob("nemo-rl", 8192, 8192, engine=ONE, offloads=ALL)
    few = named(rl)[SYNC]
    gathered = 2 * 128256 * 4096 / (1 << 30)
    free = few.usable - (few.peak - few.terms["bucket"])
    more = named(rl._replace(refit_share=0.5))[SYNC]
    assert more.terms["bucket"] == pytest.approx(gathered + 0.5 * free, rel=1e-3)
    assert few.terms["bucket"] == pytest.approx(gathered + 0.3 * free, rel=1e-3)
    assert named(rl._replace(framework="verl"))[SYNC].terms["bucket"] == pytest.approx(gathered + 2.0, rel=1e-3)


def test_adapters_leave_the_model_without_gradients_and_moments() -> None:
    whole, adapted = (named(VERL._replace(lora_rank=rank))[UPDATE] for rank in (0, 8))
    assert {"gradients", "optimizer"} <= set(whole.terms) and not {"gradients", "optimizer"} & set(adapted.terms)
    assert adapted.terms["weights"] == whole.terms["weights"]
    assert any("LoRA" in mark for mark in unsure_of(MODEL, JOB, VERL._replace(lora_rank=8), ()))


@pytest.mark.parametrize(
    ("dialect", "said"),
    [
        ("verl", {"actor_rollout_ref__model__lora__rank": 32, "actor_rollout_ref__actor__use_kl_loss": True}),
        ("verl", {"actor_rollout_ref__model__lora_rank": 8, "actor_rollout_ref__actor__use_kl_loss": True}),
        ("nemo-rl", {"policy__megatron_cfg__peft__enabled": True, "grpo__num_prompts_per_step": 8}),
        ("ms-swift", {"rlhf_type": "grpo", "tuner_type": "lora"}),
        ("ms-swift", {"rlhf_type": "grpo", "train_type": "lora"}),
    ],
)
def test_with_adapters_the_reference_is_the_model_without_them(dialect: str, said: dict[str, Any]) -> None:
    rl = read(dialect, **said)
    assert rl.lora_rank and rl.has(REFERENCE) and not rl.own_reference


def test_slime_trains_a_critic_on_the_actor_s_gpus_and_moves_both() -> None:
    """slime_validate_args: ppo has a critic, and offload_train with it; placement_group.py: on the actor's GPUs."""
    rl = read("slime", advantage_estimator="ppo", colocate=[], max_tokens_per_gpu=4096, use_dynamic_batch_size=[])
    assert rl.critic_tokens == rl.update_tokens and rl.offloads == rl.critic_offloads == ALL
    terms = named(rl)[CRITIC].terms
    assert {"critic weights", "critic gradients", "critic optimizer"} <= set(terms) and "weights" not in terms
    assert read("slime").critic_tokens == 0 and read("slime", offload=[]).offloads == ALL


def test_nemo_rl_frees_gradients_for_log_probabilities_wherever_its_engine_is() -> None:
    """prepare_for_lp_inference, and offload_optimizer_for_logprob and _for_refit."""
    apart: dict[str, Any] = {"grpo__num_prompts_per_step": 8, "policy__generation__colocated__enabled": False}
    assert read("nemo-rl", **apart).resident(LOG_PROB) == {"weights", "optimizer"}
    asked = read("nemo-rl", **apart, policy__offload_optimizer_for_logprob=True)
    assert asked.resident(LOG_PROB) == {"weights"} and asked.resident(UPDATE) == ALL
    kept = read("nemo-rl", grpo__num_prompts_per_step=8, policy__offload_optimizer_for_refit=False)
    assert kept.resident(ROLLOUT) == {"optimizer"}


def test_verl_samples_on_other_gpus_without_its_hybrid_engine() -> None:
    """fully_async_trainer.py and one_step_off_policy assert that it is off."""
    assert read("verl").engine is not None
    assert read("verl", actor_rollout_ref__hybrid_engine=False).engine is None


def test_verl_has_a_critic_as_it_is_told_and_else_by_the_estimator() -> None:
    """need_critic of verl's trainer/ppo/utils.py."""
    grpo = {"algorithm__adv_estimator": "grpo"}
    assert read("verl").has(CRITIC) and not read("verl", **grpo).has(CRITIC)
    assert read("verl", critic__enable=True, **grpo).has(CRITIC) and not read("verl", critic__enable=False).has(CRITIC)


def test_nemo_rl_generates_with_the_engine_that_it_names() -> None:
    grpo: dict[str, Any] = {"grpo__num_prompts_per_step": 8}
    assert read("nemo-rl", **grpo).engine == Engine("vllm", 0.6, sequences=1024)
    of = "policy__generation__vllm_cfg__"
    split: dict[str, Any] = {f"{of}tensor_parallel_size": 4, f"{of}expert_parallel_size": 16}
    spread = read("nemo-rl", **grpo, **split)
    assert spread.engine is not None and spread.engine.gpus == 16  # its experts, which are most of it
    for key, value in (("precision", "fp8"), ("async_engine", True)):
        other: dict[str, Any] = {f"{of}{key}": value}
        assert read("nemo-rl", **grpo, **other).engine == Engine("vllm", 0.6)
    of = "policy__generation__sglang_cfg__"
    said = {**grpo, "policy__generation__backend": "sglang", f"{of}tp_size": 4, f"{of}mem_fraction_static": 0.5}
    assert read("nemo-rl", **said).engine == Engine("sglang", 0.5, 4)
    itself = read("nemo-rl", **grpo, policy__generation__backend="megatron")
    assert itself.engine is None and itself.offloads == ALL
    assert any("itself generates" in mark for mark in unsure_of(MODEL, JOB, itself, ()))


def test_nemo_rl_s_batches_by_tokens_have_the_tokens_that_it_states() -> None:
    of = "policy__dynamic_batching__"
    said: dict[str, Any] = {"grpo__num_prompts_per_step": 8, f"{of}enabled": True, f"{of}train_mb_tokens": 16384}
    assert read("nemo-rl", **said).update_tokens == 16384
    assert read("nemo-rl", **{**said, f"{of}enabled": False}).update_tokens == 8192


def test_ms_swift_samples_with_vllm_unless_it_is_told_not_to() -> None:
    """use_vllm is True in megatron_args.py."""
    assert read("ms-swift", rlhf_type="grpo").engine is not None
    assert read("ms-swift", rlhf_type="grpo", vllm_mode="server").engine is None


def test_the_release_of_a_framework_is_the_one_that_is_stated() -> None:
    assert rl_job("nemo-rl", (), Layout(), 8192, {"nemo_rl": "0.3.0"}).release == "0.3.0"
    assert rl_job("slime", (), Layout(), 8192, {"nemo_rl": "0.3.0", "slime": None}).release == ""


PARTS: dict[str, tuple[str, ...]] = {
    "verl": (f"{A}model.path=Qwen/Qwen2.5-7B", "algorithm.adv_estimator=grpo", "data.max_prompt_length=1024",
             "data.max_response_length=1024", "trainer.n_gpus_per_node=8", f"{A}actor.strategy=megatron"),
    "nemo-rl": ("policy.model_name=Qwen/Qwen2.5-7B", "policy.max_total_sequence_length=2048",
                f"{M}enabled=true", f"{M}activation_checkpointing=false", "cluster.gpus_per_node=8"),
}  # fmt: skip


@pytest.mark.parametrize("dialect", ["verl", "nemo-rl"])
def test_the_optimizer_is_on_the_host_with_the_setting_that_is_named_and_not_with_half_of_it(dialect: Dialect) -> None:
    """Both make megatron-core's OptimizerConfig, whose optimizer_offload_fraction is 0."""

    def asked(*words: str) -> PlanJob:
        options = LoadOptions(dialect=dialect, words=(*PARTS[dialect], *words))
        return question_of("", options, {"gpus": 8, "gpu": "h100", "global_batch": 64}, None, True).job

    job = replace(JOB, world_size=2)
    rl = RlJob(dialect, 1024, 1024, least_tokens=1024)
    held = max(item.peak for item in phases_of(MODEL, Layout(tp=2), replace(job, optimizer_bytes=0), rl))
    tight = replace(job, gpu=job.gpu._replace(reported_mib=round((held + RESERVED + 0.2) * 1024)))
    failure = first_failure(MODEL, Layout(tp=2), tight, rl, phases_of(MODEL, Layout(tp=2), tight, rl))
    assert failure is not None and "optimizer_cpu_offload" in failure.setting
    words = failure.setting.split()
    assert asked().optimizer_bytes == 12 and asked(*words).optimizer_bytes == 0
    half = [word for word in words if "fraction" not in word]
    assert asked(*half).optimizer_bytes == 12
    assert asked(*half, words[0].rpartition(".")[0] + ".optimizer_offload_fraction=0.5").optimizer_bytes == 6
