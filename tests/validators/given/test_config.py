"""A launch's settings over upstream's composed configuration."""

from __future__ import annotations

from typing import Any

import pytest

from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.options import parse_assumptions
from megatron_hcp.launch.readers.target import read_target
from megatron_hcp.validators.given.config import Settings, configuration_of
from megatron_hcp.validators.values import NotKnown, Thing

ACTOR = "actor_rollout_ref.actor"
SETTINGS = Settings(
    (
        f"{ACTOR}.megatron.context_parallel_size\t1",
        f"{ACTOR}.megatron.dtype\t'bfloat16'",
        f"{ACTOR}.megatron.override_transformer_config\t{{}}",
        f"actor_rollout_ref.ref.megatron.context_parallel_size\t@{ACTOR}.megatron.context_parallel_size\t1",
        f"actor_rollout_ref.ref.megatron.override_transformer_config\t@{ACTOR}.megatron.override_transformer_config\t{{}}",
        "actor_rollout_ref.ref.lost\t@nowhere.at_all\t7",
        "critic.enable\tNone",
        "trainer.nnodes\t1",
        "loop\t@loop2\t...",
        "loop2\t@loop\t...",
    )
)


def launch_of(*words: str, stated: tuple[str, ...] = ()) -> Launch:
    launch = read_target("", dialect="verl", words=("model_engine=megatron", *words))
    return build_launch(launch, assumed=parse_assumptions(stated))


def value(launch: Launch, key: str) -> Any:
    found: Any = configuration_of(launch, SETTINGS)
    for name in key.split("."):
        assert isinstance(found, Thing)
        found = found.fields[name]
    return found


def test_a_setting_has_upstreams_default_or_what_the_launch_writes() -> None:
    assert value(launch_of(), f"{ACTOR}.megatron.dtype") == "bfloat16"
    assert value(launch_of(f"{ACTOR}.megatron.dtype=float16"), f"{ACTOR}.megatron.dtype") == "float16"
    assert value(launch_of("+critic.new.key=3"), "critic.new.key") == 3


def test_a_reference_follows_what_the_launch_writes() -> None:
    launch = launch_of(
        f"{ACTOR}.megatron.context_parallel_size=4", f"+{ACTOR}.megatron.override_transformer_config.x=2"
    )
    assert value(launch, "actor_rollout_ref.ref.megatron.context_parallel_size") == 4
    assert value(launch, "actor_rollout_ref.ref.megatron.override_transformer_config.x") == 2
    assert value(launch, "actor_rollout_ref.ref.lost") == 7
    assert isinstance(value(launch, "loop"), NotKnown)


def test_what_was_stated_beside_the_launch_counts_as_written() -> None:
    assert value(launch_of(stated=("nodes=3",)), "trainer.nnodes") == 3


@pytest.mark.parametrize("word", ["trainer.nnodes=${oc.env:N}", "trainer.nnodes=???"])
def test_a_value_that_cannot_be_read_is_unknown_under_its_key(word: str) -> None:
    found = value(launch_of(word), "trainer.nnodes")
    assert isinstance(found, NotKnown) and found.names == {"trainer.nnodes"}


def test_a_configuration_that_is_not_read_leaves_every_setting_open() -> None:
    found = value(launch_of("--config-dir", "mine", f"{ACTOR}.megatron.dtype=float16"), f"{ACTOR}.megatron.dtype")
    assert found == "float16"
    assert isinstance(value(launch_of("--config-dir=mine"), "trainer.nnodes"), NotKnown)


def test_sections_know_their_keys_and_a_word_that_chooses_a_file_is_no_value() -> None:
    launch = launch_of("critic=megatron_critic")
    assert value(launch, f"{ACTOR}.megatron").key == f"{ACTOR}.megatron"
    assert isinstance(value(launch, "critic"), Thing)
    assert configuration_of(launch, SETTINGS).key == ""
