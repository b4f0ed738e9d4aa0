"""rLLM trains on verl: its names for verl's settings are read, and its defaults are not taken for verl's.

The launch is shortened from cookbooks/math/train_verl.sh of rllm-org/rllm; the names are those of `_SHARED_KEYS` in
rllm/trainer/verl/utils.py at 9beb6e0f, the defaults those of rllm/trainer/config/rllm/base.yaml.
"""

from __future__ import annotations

import pytest

from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.readers.target import read_text

LAUNCH = (
    "python -u train.py rllm/backend=verl model_engine=megatron "
    "actor_rollout_ref.actor.megatron.context_parallel_size=2 trainer.n_gpus_per_node=8 trainer.nnodes=1"
)


def launch(*words: str, start: str = LAUNCH) -> Launch:
    return build_launch(read_text(f"#!/bin/bash\n{start} {' '.join(words)}\n", "train.sh"))


def value(told: Launch, key: str) -> object:
    return next((s.value for s in reversed(told.reading.settings) if s.key == key), "absent")


def test_a_launch_of_rllm_on_verl_is_verls() -> None:
    told = launch()
    assert told.dialect == "verl"
    assert (told.facts["cp"].value, told.facts["strategy"].value) == (2, "megatron")


def test_what_is_written_under_rllms_name_is_verls_setting_and_wins() -> None:
    told = launch("rllm.data.train_batch_size=64", "data.train_batch_size=32", "rllm.rollout.n=4")
    assert value(told, "data.train_batch_size") == 64
    assert value(told, "actor_rollout_ref.rollout.n") == 4


def test_rllms_defaults_are_not_taken_for_verls() -> None:
    """Without the setting rLLM has 64 prompts of 2,048 tokens, and verl 1,024 of 512."""
    told = launch("data.max_prompt_length=4096")
    assert told.reading.unknown["data.train_batch_size"] == "is set by rLLM's own configuration"
    assert "data.max_prompt_length" not in told.reading.unknown
    assert value(told, "data.max_prompt_length") == 4096


def test_a_value_that_cannot_be_read_hides_verls_setting() -> None:
    assert "data.train_batch_size" in launch('rllm.data.train_batch_size="$BATCH"').reading.unknown


@pytest.mark.parametrize("start", ["python3 -m verl.trainer.main_ppo model_engine=megatron trainer.nnodes=1"])
def test_verls_own_launches_keep_their_defaults(start: str) -> None:
    assert "data.train_batch_size" not in launch(start=start).reading.unknown
