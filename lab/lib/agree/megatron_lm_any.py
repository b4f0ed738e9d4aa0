"""Random command lines of Megatron-LM over all options that a revision's parser has, whatever they are about."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from agree.megatron_lm_launches import Drawn, Options, draw

_LEFT_OUT = ("--help", "-h", "--yaml-cfg", "--use-checkpoint-args", "--use-mp-args-from-checkpoint-args", "--load")
"""What takes settings from elsewhere, or reads files that a drawn line does not have."""
_READS = ("config-path", "config-file", "args-path", "cfg", "tracker-filename", "encoded-json", "factory")
_NUMBERS = {"int": ("0", "1", "2", "4", "8", "-1", "3"), "float": ("0.0", "0.1", "0.5", "1.0", "2.0", "-1.0")}
_MOST = 8


def draw_any(rng: random.Random, options: Options) -> Drawn:
    """A line of `draw`, with up to eight options more, each with a value of its type."""
    base = draw(rng, options)
    names = sorted(name for name in options if name.startswith("--") and _is_drawn(name))
    words = list(base.words)
    for name in rng.sample(names, rng.randint(1, _MOST)):
        if name not in words:
            words += [name, *_values(rng, name, options[name])]
    return base._replace(words=tuple(words))


def _is_drawn(name: str) -> bool:
    return name not in _LEFT_OUT and not name.endswith(_READS)


def _values(rng: random.Random, name: str, action: Mapping[str, Any]) -> list[str]:
    takes = action["takes"]
    count = takes if isinstance(takes, int) else {"?": rng.randint(0, 1), "+": 1, "*": rng.randint(0, 2)}.get(takes, 1)
    choices = [str(choice).rpartition(".")[2] for choice in action["choices"] or ()]
    return [rng.choice(choices or list(_NUMBERS.get(action["type"], ("x",)))) for _ in range(count)]
