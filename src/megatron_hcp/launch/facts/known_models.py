"""The sizes of public models: known_models.txt."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from typing import Any

_STAGES = tuple("-Base -Instruct -Thinking -Reasoning -Chat -it -pt -hf -2507 -FP8 -BF16 -RL".split())
"""How names of one model differ by its stage of training or its precision, of which neither changes its sizes."""
FOR_PLANS = frozenset(("moe_latent_size", "csa", "config"))
"""Fields of which no launch has facts. csa: what a config.json has of DeepSeek-V4's attention; config: what it has
beside the sizes, such as windows and an indexer, of which each framework's release makes what it can."""
_FILE = os.path.join(os.path.dirname(__file__), "known_models.txt")


@cache
def fields_of(model: str) -> Mapping[str, Any]:
    """The fields of megatron-core's configuration that a model of the Hugging Face Hub has; {} for an unknown name.

    A name that the table lacks has the sizes of another stage or precision of the same model: `Qwen/Qwen3-32B-Base`
    those of `Qwen/Qwen3-32B`.
    """
    lines = _lines()
    stage = without_stage(model)
    line = lines.get(model) or next((line for name, line in lines.items() if without_stage(name) == stage), "")
    _, _, other = line.rstrip("\n").partition(" =")
    if other:
        return fields_of(other)
    return {name: json.loads(value) for name, _, value in (field.partition("=") for field in line.split()[2:])}


def names_of_models() -> tuple[str, ...]:
    """The names in the table, in its order."""
    return tuple(_lines())


@cache
def _lines() -> Mapping[str, str]:
    with open(_FILE, encoding="utf-8") as file:
        return {line.partition(" ")[0]: line for line in file if line[0] != "#"}


def without_stage(model: str) -> str:
    """A model's name without what tells its stage of training or its precision, and without NVIDIA's own name twice.

    >>> without_stage("Qwen/Qwen3-4B-Instruct-2507-FP8"), without_stage("Qwen/Qwen3-4B")
    ('Qwen/Qwen3-4B', 'Qwen/Qwen3-4B')
    """
    while (end := next((end for end in _STAGES if model.endswith(end)), "")) != "":
        model = model.removesuffix(end)
    return model.replace("/NVIDIA-", "/")
