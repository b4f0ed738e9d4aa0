"""A Megatron-Bridge launch as the container that upstream validates."""

from __future__ import annotations

from typing import Any

import pytest

from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Fact, Launch
from megatron_hcp.launch.forms.words.settings import Word
from megatron_hcp.launch.readers.target import read_text
from megatron_hcp.launch.readers.words import reading_of_words
from megatron_hcp.launch.recipes.merge import alone, with_recipe
from megatron_hcp.validators.evaluate import Evaluation
from megatron_hcp.validators.given.container import container_of
from megatron_hcp.validators.start import judge_start
from megatron_hcp.validators.table import program_of_release
from megatron_hcp.validators.values import NotKnown, Symbol, Thing

RELEASE = "0.6.0"
RANKS = {"world_size": Fact(8, "assumed")}
YAML = """\
_target_: megatron.bridge.training.config.ConfigContainer
model:
  _target_: megatron.bridge.models.gpt_provider.GPTModelProvider
  num_layers: 4
  hidden_size: 64
  num_attention_heads: 4
  seq_length: 4096
  context_parallel_size: 2
  params_dtype:
    _target_: torch.bfloat16
    _call_: false
dataset:
  _target_: megatron.bridge.training.config.MockGPTDatasetConfig
  sequence_length: 4096
  random_seed: 1
  reset_position_ids: false
  reset_attention_mask: false
  eod_mask_loss: false
train:
  train_iters: 10
  global_batch_size: 8
  micro_batch_size: 1
mixed_precision: bf16_mixed
"""


def overrides(*words: str) -> Launch:
    return build_launch(reading_of_words("bridge", [Word(word) for word in words], "-"), assumed=RANKS)


def container(launch: Launch) -> Thing:
    program = program_of_release("megatron-bridge", RELEASE)
    assert program is not None
    return container_of(launch, Evaluation(program, lambda *_: None))


def value(owner: Thing, key: str) -> Any:
    found: Any = owner
    for name in key.split("."):
        found = found.fields[name]
    return found


def refused(launch: Launch, release: str = RELEASE) -> list[str]:
    judged = judge_start(launch, release)
    assert judged is not None
    return [refusal.guard.function for refusal in judged.refusals]


def test_what_an_override_list_leaves_to_the_recipe_is_unknown() -> None:
    made = container(overrides("model.context_parallel_size=2"))
    assert value(made, "model.context_parallel_size") == 2
    unknown = value(made, "model.num_layers")
    assert isinstance(unknown, NotKnown) and unknown.names == {"model.num_layers"}
    assert isinstance(made.fields["peft"], NotKnown)


def of_recipe(name: str, *words: str) -> Launch:
    reading = reading_of_words("bridge", [Word(word) for word in words], "-") if words else alone(name)
    return build_launch(with_recipe(reading, name, RELEASE), assumed={**RANKS, "bridge": Fact(RELEASE, "assumed")})


def test_what_no_recipe_sets_has_the_default_of_its_class() -> None:
    """v0.6.0: recipes set train_iters, and none train_samples; activation_func comes from a model's config.json."""
    made = container(of_recipe("llama3_8b_pretrain_config"))
    assert value(made, "train.train_samples") is None and value(made, "train.train_iters") == 1168251
    assert value(made, "checkpoint.ckpt_step") is None and made.fields["comm_overlap"] is None
    assert isinstance(value(made, "model.activation_func"), NotKnown)


@pytest.mark.parametrize("option", ["config.model=1", "recipe_kwargs=1", "max_steps=3"])
def test_nothing_is_left_at_its_default_behind_a_launchers_own_option(option: str) -> None:
    """An option without a section may set anything."""
    launch = of_recipe("llama3_8b_pretrain_config", option)
    known = value(container(launch), "checkpoint.ckpt_step") is None
    assert known is ("." in option)


def test_a_recipe_that_is_given_an_argument_leaves_all_else_unknown() -> None:
    text = "recipe:\n  _target_: megatron.bridge.recipes.llama.llama3_8b_pretrain_config\n  seq_length: 4096\n"
    reading = with_recipe(read_text(text, "c.yaml"), None, RELEASE)
    assert reading.recipe is not None and reading.recipe.varies is None


@pytest.mark.parametrize(
    ("recipe", "words", "function"),
    [
        ("llama3_8b_pretrain_config", ("train.train_iters=null",), "TrainingConfig.finalize"),
        ("nemotronh_4b_pretrain_config", ("model.num_layers=10",), "HybridModelProvider.finalize"),
        ("llama3_8b_pretrain_config", ("train.train_samples=10",), "TrainingConfig.finalize"),
    ],
)
def test_an_override_that_does_not_go_with_its_recipe_is_refused(
    recipe: str, words: tuple[str, ...], function: str
) -> None:
    assert function in refused(of_recipe(recipe, *words))
    assert function not in refused(of_recipe(recipe))


def test_what_a_whole_yaml_leaves_out_has_the_default_of_its_class() -> None:
    made = container(build_launch(read_text(YAML, "c.yaml"), assumed=RANKS))
    assert value(made, "model.fp16") is False and made.fields["peft"] is None
    assert value(made, "model.params_dtype") == Symbol("torch.bfloat16")
    assert value(made, "dataset.seq_length") == value(made, "dataset.sequence_length") == 4096
    assert made.fields["mixed_precision"] == "bf16_mixed"


def test_a_section_knows_its_key_so_that_a_finding_names_the_launchs_own_words() -> None:
    made = container(overrides("ddp.bucket_size=3"))
    assert (made.key, made.fields["ddp"].key) == ("", "ddp")


def test_a_setting_that_the_launch_hides_is_unknown() -> None:
    launch = overrides("model.seq_length=4096", "model.context_parallel_size=2")
    launch = launch._replace(reading=launch.reading._replace(unknown={"model.context_parallel_size": "$CP"}))
    assert isinstance(value(container(launch), "model.context_parallel_size"), NotKnown)


def test_mixed_precision_is_carried_into_the_sections_as_upstream_does() -> None:
    fp16 = YAML.replace("  num_layers: 4", "  num_layers: 4\n  fp16: true")
    assert not refused(build_launch(read_text(fp16, "c.yaml"), assumed=RANKS))
    both = fp16.replace("mixed_precision: bf16_mixed", "mixed_precision: null").replace(
        "fp16: true", "fp16: true\n  bf16: true"
    )
    assert refused(build_launch(read_text(both, "c.yaml"), assumed=RANKS))  # not both bf16 and fp16


def test_a_guard_that_the_recipe_decides_is_open_and_never_refuses() -> None:
    judged = judge_start(overrides("comm_overlap.overlap_moe_expert_parallel_comm=true"), RELEASE)
    assert judged is not None and not judged.refusals
    names = {name for guard in judged.open for name in guard.unknown}
    assert "model.expert_model_parallel_size" in names


def test_a_peft_that_only_the_recipe_may_have_asks_for_no_checkpoint() -> None:
    assert not refused(overrides("checkpoint.pretrained_checkpoint=null"))


def test_a_target_that_is_no_class_of_upstreams_is_not_followed() -> None:
    assert not refused(overrides("model._target_=start", "dataset._target_=runtime_config_update"))
