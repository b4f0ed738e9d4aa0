"""The sizes of public models: known_models.txt."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from typing import Any

_FILE = os.path.join(os.path.dirname(__file__), "known_models.txt")


@cache
def fields_of(model: str) -> Mapping[str, Any]:
    """The fields of megatron-core's configuration that a model of the Hugging Face Hub has; {} for an unknown name."""
    with open(_FILE, encoding="utf-8") as file:
        line = next((line for line in file if line.partition(" ")[0] == model), "")
    _, _, other = line.rstrip("\n").partition(" =")
    if other:
        return fields_of(other)
    return {name: json.loads(value) for name, _, value in (field.partition("=") for field in line.split()[2:])}
