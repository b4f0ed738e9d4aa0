"""Values presumed for keys that a launch leaves to an unknown Megatron-Bridge recipe, and how many recipes differ."""

from __future__ import annotations

import os
from functools import cache
from typing import Any, NamedTuple

_WORDS = {"null": None, "true": True, "false": False}


class Presumption(NamedTuple):
    """`recipes_set` of `recipes` set the fact to another value than `value`."""

    value: Any
    recipes_set: int
    recipes: int


@cache
def presumptions() -> dict[str, Presumption]:
    """Fact name -> what is presumed if an unknown recipe sets it; `lab/recipes/presumptions.py` updates the numbers."""
    with open(os.path.join(os.path.dirname(__file__), "presumed.txt"), encoding="utf-8") as file:
        (_, recipes), *rows = (line.split() for line in file)
    return {name: Presumption(_value(word), int(number), int(recipes)) for name, word, number in rows}


def _value(word: str) -> Any:
    if word in _WORDS:
        return _WORDS[word]
    return int(word) if word.isdecimal() else float(word) if word.replace(".", "", 1).isdecimal() else word
