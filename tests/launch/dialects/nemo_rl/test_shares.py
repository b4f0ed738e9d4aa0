"""What others than the policy take of NeMo-RL's cluster, and which model a placeholder means."""

from __future__ import annotations

import pytest

from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.readers.target import read_text

BASE = """\
cluster: {num_nodes: 1, gpus_per_node: 8}
policy:
  model_name: x
  train_global_batch_size: 512
  megatron_cfg: {enabled: true, tensor_model_parallel_size: 2, context_parallel_size: 1}
"""


def of_text(text: str) -> Launch:
    return build_launch(read_text(text, "<stdin>"))


REWARD = """\
data: {default: {env_name: reward_model}}
env: {reward_model: {resources: {num_nodes: 1, gpus_per_node: 1}}}
"""
COLOCATED = "  generation: {colocated: {enabled: true}}\n"


@pytest.mark.parametrize(
    ("nodes", "reward", "left"),
    [
        (1, REWARD, (1, 7)),  # of the only node it takes GPUs
        (4, REWARD, (3, 8)),
        (4, REWARD.replace("reward_model}}", "math}}"), (4, 8)),  # no environment asks for it
        (4, REWARD.replace("num_nodes: 1, ", ""), (None, None)),
        (1, REWARD.replace("gpus_per_node: 1", "gpus_per_node: 8"), (None, None)),  # refused
    ],
)
def test_a_reward_model_takes_its_part_of_the_cluster(
    nodes: int, reward: str, left: tuple[int | None, int | None]
) -> None:
    launch = of_text(f"{BASE.replace('num_nodes: 1', f'num_nodes: {nodes}')}{COLOCATED}{reward}")
    found = [launch.facts.get(name) for name in ("nodes", "gpus_per_node")]
    assert tuple(None if fact is None else fact.value for fact in found) == left


def test_the_teacher_of_a_distillation_does_not_generate() -> None:
    teacher = "teacher: {generation: {colocated: {enabled: false, resources: {num_nodes: 1}}}}\n"
    assert of_text(f"{BASE}{teacher}").facts["nodes"].value == 1


@pytest.mark.parametrize(
    ("name", "hidden_size"),
    [
        ("Follow instructions in https://github.com/NVIDIA-NeMo/RL/blob/main/docs/guides/deepseek.md", 7168),
        ("/path/to/nemotron-super-omni-hf-checkpoint", 4096),
        ("/path/to/something", None),
    ],
)
def test_what_stands_for_a_model_that_must_be_made_first_has_its_sizes(name: str, hidden_size: int | None) -> None:
    launch = of_text(BASE.replace("model_name: x", f'model_name: "{name}"'))
    fact = launch.facts.get("hidden_size")
    assert (None if fact is None else fact.value) == hidden_size
    assert any("placeholder" in note for note in launch.reading.notes) == (hidden_size is not None)
