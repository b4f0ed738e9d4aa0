"""How many recipes change a fact: in the recipe, in the model's bridge, in the provider's class."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import presumptions
import pytest

RECIPES = """
from megatron.bridge.models import AutoBridge, ConfigContainer, WindowProvider

HF_PATH = "openai/gpt-oss-20b"

def plain_config():
    cfg = ConfigContainer(model=AutoBridge.from_hf_pretrained("Qwen/Qwen3-8B").to_megatron_provider())
    cfg.model.cp_comm_type = "p2p"
    return cfg

def set_config():
    cfg = plain_config()
    cfg.model.cp_comm_type = "a2a"
    cfg.model.hierarchical_context_parallel_sizes = None
    return cfg

def sinks_config():
    return ConfigContainer(model=AutoBridge.from_hf_pretrained(HF_PATH).to_megatron_provider(load_weights=False))

def no_sinks_config():
    cfg = sinks_config()
    cfg.model.softmax_type = "vanilla"
    return cfg

def provider_config():
    return ConfigContainer(model=WindowProvider())
"""
MODELS = """
class AutoBridge: ...

@dataclass
class ConfigContainer:
    model: object = None

class GPTModelProvider:
    window_size = None

class WindowProvider(GPTModelProvider):
    window_size: tuple[int, int] = (511, 0)
    attention_backend: AttnBackend = AttnBackend.auto

class MegatronModelBridge:
    pass

class Qwen3Bridge(MegatronModelBridge):
    def provider_bridge(self, hf):
        provider = super().provider_bridge(hf)
        provider.cp_comm_type = "a2a"
        provider.softmax_type = "vanilla"

class GPTOSSBridge(MegatronModelBridge):
    def provider_bridge(self, hf):
        return WindowProvider(softmax_type="learnable", window_size=(hf.config.sliding_window, 0))
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    package = tmp_path / "src" / "megatron" / "bridge"
    (package / "recipes").mkdir(parents=True)
    (package / "recipes" / "some.py").write_text(RECIPES)
    (package / "recipes" / "__init__.py").write_text("from megatron.bridge.recipes.some import *\n")
    (package / "models.py").write_text(MODELS)
    (tmp_path / "3rdparty" / "Megatron-LM" / "megatron" / "core").mkdir(parents=True)
    return tmp_path


def changes(checkout: Path) -> dict[str, dict[str, Any]]:
    sources = presumptions.Sources(checkout)
    found = presumptions.recipes(checkout, sources)
    return {recipe.target.partition(":")[2]: presumptions.changed(recipe, sources) for recipe in found}


def test_a_recipe_changes_what_it_its_bridge_or_its_provider_sets(checkout: Path) -> None:
    changed = changes(checkout)
    assert changed["plain_config"] == {}  # the recipe's word goes over the bridge's
    assert changed["set_config"] == {"cp_comm_type": "a2a"}
    sizes = {"num_experts": 32, "window_attn_skip_freq": 2}  # of gpt-oss-20b: launch/facts/known_models.txt
    by_bridge = {"softmax_type": "learnable", "window_size": presumptions.UNREAD}
    assert changed["sinks_config"] == {**by_bridge, **sizes}
    assert set(changed["no_sinks_config"]) == {"window_size", *sizes}
    assert changed["provider_config"] == {"window_size": (511, 0)}


def test_facts_that_few_recipes_change_are_presumed_at_bridges_default() -> None:
    facts = presumptions.presumed(Counter({"cp_comm_type": 15, "softmax_type": 16}), 100)["facts"]
    assert facts["cp_comm_type"] == {"value": "p2p", "recipes_set": 15}
    assert facts["hcp_sizes"] == {"value": None, "recipes_set": 0}
    assert "softmax_type" not in facts and "calculate_per_token_loss" not in facts and "tp" not in facts


def test_the_file_is_compared_with_the_checkout(root: Path, checkout: Path) -> None:
    words: list[str | Path] = [sys.executable, root / "lab", "recipes/presumptions", "--bridge", checkout, "--check"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("5 recipes; no Hugging Face model with a known bridge: 1\n")
    assert "    1  too many  cp_comm_type: a2a 1" in done.stdout  # 1 of 5 is more than 15 in 100
    assert done.stdout.endswith("presumed.txt does not say this: renew it with --write\n")


@pytest.mark.slow
def test_a_checkout_without_the_megatron_lm_that_it_pins_is_refused(root: Path, checkout: Path) -> None:
    (checkout / "3rdparty").rename(checkout / "elsewhere")
    words: list[str | Path] = [sys.executable, root / "lab", "recipes/presumptions", "--bridge", checkout]
    refused = subprocess.run(words, capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "name the one that the checkout pins with --megatron-lm" in refused.stderr
    named = [*words, "--megatron-lm", checkout / "elsewhere" / "Megatron-LM"]
    done = subprocess.run(named, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("5 recipes;"), done.stderr
