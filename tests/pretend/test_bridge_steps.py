"""With which forward step a recipe is run: that of Bridge's own scripts, chosen by the recipe's name."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from megatron_hcp.pretend.stand_ins.frameworks.bridge import step_of
from support.rows import rows

pytestmark = pytest.mark.torch


class FluxForwardStep:
    """A step that is an object."""


def modules(monkeypatch: pytest.MonkeyPatch, path: str, **names: Any) -> None:
    parts = f"megatron.bridge.{path}".split(".")
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end])
        module = ModuleType(name)
        module.__path__ = []
        monkeypatch.setitem(sys.modules, name, module)
    vars(module).update(names)


@rows("recipe, path", [
    ("llama3_8b_pretrain_1gpu_h100_bf16_config", "training.gpt_step"),
    ("qwen35_vl_27b_pretrain_16gpu_gb200_bf16_mock_config", "models.qwen_vl.qwen3_vl_step"),
    ("gemma3_vl_4b_sft_config", "training.vlm_step"),
    ("qwen3_8b_pretrain_config", "training.gpt_step"),
])  # fmt: skip
def test_a_recipes_name_chooses_the_step(monkeypatch: pytest.MonkeyPatch, recipe: str, path: str) -> None:
    modules(monkeypatch, path, forward_step=path)
    assert step_of(recipe) == path


def test_a_class_of_steps_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    modules(monkeypatch, "diffusion.models.flux.flux_step", Adapter=int, FluxForwardStep=FluxForwardStep)
    assert isinstance(step_of("flux_12b_pretrain_2gpu_h100_bf16_config"), FluxForwardStep)
