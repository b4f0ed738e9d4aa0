"""What a launch that leaves a key to an unknown Megatron-Bridge recipe is checked at, and how many recipes differ."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple


class Presumption(NamedTuple):
    """`recipes_set` of `recipes` give the fact another value than `value`."""

    value: Any
    recipes_set: int
    recipes: int


@cache
def presumptions() -> dict[str, Presumption]:
    """Fact name -> what is presumed where an unknown recipe decides; `bench/presumptions.py` renews the numbers."""
    data = json.loads((files("hcp.launch.facts") / "presumed.json").read_text("utf-8"))
    return {
        name: Presumption(
            tuple(entry["value"]) if isinstance(entry["value"], list) else entry["value"],
            entry["recipes_set"],
            data["recipes"],
        )
        for name, entry in data["facts"].items()
    }
