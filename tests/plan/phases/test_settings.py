"""The one setting that makes a step fit is the one that was tried: read back from the launch, it is the same change."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from megatron_hcp.launch.fact import Dialect
from megatron_hcp.launch.load import LoadOptions
from megatron_hcp.plan.from_launch import layout_of
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.phases.change import changes_of
from megatron_hcp.plan.phases.job import ROLLOUT, UPDATE, RlJob
from megatron_hcp.plan.phases.memory import phases_of
from megatron_hcp.plan.phases.read import rl_job
from megatron_hcp.plan.question import question_of

A, M = "actor_rollout_ref.", "policy.megatron_cfg."
WORDS: dict[Dialect, str] = {
    "verl": f"{A}actor.strategy=megatron algorithm.adv_estimator=grpo data.max_prompt_length=1024 "
    f"data.max_response_length=7168 trainer.n_gpus_per_node=8 {A}rollout.name=vllm {A}actor.use_kl_loss=True "
    f"{A}actor.use_dynamic_bsz=True {A}actor.ppo_max_token_len_per_gpu=16384 "
    f"{A}rollout.log_prob_max_token_len_per_gpu=65536 {A}ref.log_prob_max_token_len_per_gpu=65536 "
    f"{A}ref.megatron.param_offload=False",
    "nemo-rl": f"policy.model_name=Qwen/Qwen2.5-7B policy.max_total_sequence_length=8192 {M}enabled=true "
    f"{M}activation_checkpointing=false cluster.gpus_per_node=8 grpo.num_prompts_per_step=8 "
    "policy.train_micro_batch_size=2 policy.logprob_batch_size=4 policy.sequence_packing.enabled=true",
    "slime": "python3 train.py --colocate --no-offload-train --actor-num-nodes 1 --actor-num-gpus-per-node 8 "
    "--use-dynamic-batch-size --max-tokens-per-gpu 16384 --log-probs-max-tokens-per-gpu 65536 "
    "--rollout-max-response-len 8192 --global-batch-size 64 --use-kl-loss --sglang-mem-fraction-static 0.7",
    "ms-swift": "megatron rlhf --rlhf_type grpo --max_length 4096 --max_completion_length 4096 --micro_batch_size 2 "
    "--global_batch_size 64 --vllm_mode colocate --sleep_level 2 --vllm_gpu_memory_utilization 0.6",
}
"""Launches that state each key whose default would follow another."""
FEWEST = {"verl": 8, "nemo-rl": 5, "slime": 6, "ms-swift": 6}
"""Changes that each framework has, the engine's share included."""


class Read(NamedTuple):
    model: PlanModel
    layout: Layout
    job: PlanJob
    rl: RlJob


def read(dialect: Dialect, folder: Path, more: str = "") -> Read:
    target, words = "", tuple(f"{WORDS[dialect]} {more}".split())
    options = LoadOptions(dialect=dialect, words=words, model_file="Qwen/Qwen2.5-7B")
    if dialect in ("slime", "ms-swift"):
        script = folder / "run.sh"
        said = WORDS[dialect].replace("--use-dynamic-batch-size", "") if "--micro-batch" in more else WORDS[dialect]
        script.write_text(f"{said} {more}\n")
        target, options = str(script), LoadOptions(model_file="Qwen/Qwen2.5-7B")
    asked = question_of(target, options, {"gpus": 8, "gpu": "h100", "global_batch": 64}, None, True)
    layout = layout_of(asked.facts, asked.job.seq_length)
    rl = rl_job(asked.dialect, asked.settings, layout, asked.job.seq_length)
    return Read(asked.model, layout, asked.job, rl)


@pytest.mark.parametrize("dialect", list(WORDS))
def test_a_setting_that_is_named_makes_the_change_that_was_tried(dialect: Dialect, tmp_path: Path) -> None:
    whole = read(dialect, tmp_path)
    phases = {item.name: item for item in phases_of(*whole)}
    failing = phases[ROLLOUT]._replace(usable=phases[ROLLOUT].peak - 8.0)
    changes = list(changes_of(whole.layout, whole.job, whole.rl, failing))
    assert len(changes) >= FEWEST[dialect] and len({item.setting for item in changes}) == len(changes)
    for change in changes:
        again = read(dialect, tmp_path, change.setting)
        assert again.rl == change.rl, change.setting
        assert again.layout.recompute == change.layout.recompute, change.setting
        assert again.job.optimizer_bytes == change.job.optimizer_bytes, change.setting


COUNTED: dict[Dialect, str] = {
    "verl": f"{A}actor.use_dynamic_bsz=False {A}actor.ppo_micro_batch_size_per_gpu=2 "
    f"{A}rollout.log_prob_micro_batch_size_per_gpu=4 {A}ref.log_prob_micro_batch_size_per_gpu=1",
    "slime": "--micro-batch-size 4",
}


@pytest.mark.parametrize("dialect", list(COUNTED))
def test_micro_batches_that_are_counted_in_sequences_are_cut_in_sequences(dialect: Dialect, tmp_path: Path) -> None:
    """Both read budgets of tokens only with their dynamic batches."""
    whole = read(dialect, tmp_path, COUNTED[dialect])
    changes = list(changes_of(whole.layout, whole.job, whole.rl, phases_of(*whole)[-1]))
    cut = [change for change in changes if "micro" in change.setting]
    assert cut and not [change for change in changes if "token" in change.setting]
    for change in cut:
        assert change.rl != whole.rl
        assert read(dialect, tmp_path, f"{COUNTED[dialect]} {change.setting}").rl == change.rl, change.setting


def test_verl_s_micro_batches_that_are_counted_in_two_ways_are_left_alone(tmp_path: Path) -> None:
    whole = read("verl", tmp_path, f"{A}rollout.log_prob_use_dynamic_bsz=False")
    changes = changes_of(whole.layout, whole.job, whole.rl, phases_of(*whole)[-1])
    assert not [change for change in changes if "token" in change.setting or "micro" in change.setting]


def test_nemo_rl_s_sglang_is_told_its_own_share(tmp_path: Path) -> None:
    """sglang_cfg of generation.py; vllm_cfg is not read there."""
    sglang = "policy.generation.backend=sglang policy.generation.sglang_cfg.mem_fraction_static=0.9"
    whole = read("nemo-rl", tmp_path, sglang)
    rollout = next(item for item in phases_of(*whole) if item.name == ROLLOUT)
    change = next(changes_of(whole.layout, whole.job, whole.rl, rollout._replace(usable=rollout.peak - 8.0)))
    assert change.rl != whole.rl and read("nemo-rl", tmp_path, f"{sglang} {change.setting}").rl == change.rl


def test_a_row_whose_tokens_nemo_rl_is_told_is_not_to_be_cut_by_its_sequences(tmp_path: Path) -> None:
    """logprob_mb_tokens decides where it is stated: logprob_batch_size would change nothing."""
    counted = read("nemo-rl", tmp_path)
    stated = read("nemo-rl", tmp_path, "policy.sequence_packing.logprob_mb_tokens=600000")
    for whole, offered in ((counted, True), (stated, False)):
        failing = phases_of(*whole)[-1]
        changes = changes_of(whole.layout, whole.job, whole.rl, failing)
        assert any("logprob_batch_size" in change.setting for change in changes) is offered


def test_an_engine_on_no_gpus_counts_as_on_one(tmp_path: Path) -> None:
    none, one = (read("slime", tmp_path, f"--rollout-num-gpus-per-engine {gpus}") for gpus in (0, 1))
    assert phases_of(*none) == phases_of(*one)


def test_the_share_that_is_named_is_small_enough_by_itself(tmp_path: Path) -> None:
    """What an engine takes beside its share stays as it is, so that the share alone has to give way."""
    whole = read("slime", tmp_path, "--offload-train")
    rollout = next(item for item in phases_of(*whole) if item.name == ROLLOUT)
    tight = rollout._replace(usable=rollout.peak - 6.0)
    change = next(changes_of(whole.layout, whole.job, whole.rl, tight))
    again = next(item for item in phases_of(whole.model, *change[1:]) if item.name == ROLLOUT)
    assert "mem-fraction" in change.setting and again.peak <= tight.usable


def test_ms_swift_moves_the_reference_s_weights_with_the_model_s(tmp_path: Path) -> None:
    moved = {item.name: item for item in phases_of(*read("ms-swift", tmp_path, "--offload_model true"))}
    kept = {item.name: item for item in phases_of(*read("ms-swift", tmp_path))}
    assert "reference weights" in kept[ROLLOUT].terms and "reference weights" not in moved[ROLLOUT].terms
    assert "reference weights" in moved[UPDATE].terms


def test_slime_s_trainer_is_moved_by_the_option_that_its_release_has(tmp_path: Path) -> None:
    read_ = read("slime", tmp_path)
    for release, option in (("0.1.0", "--offload"), ("0.2.0", "--offload-train"), ("", "--offload-train")):
        rl = read_.rl._replace(release=release)
        failing = phases_of(read_.model, read_.layout, read_.job, rl)[-1]
        assert option in [item.setting for item in changes_of(read_.layout, read_.job, rl, failing)]
