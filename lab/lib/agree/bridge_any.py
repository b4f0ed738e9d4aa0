"""Random Megatron-Bridge configurations over all settings of a release, whatever they are about."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from agree.bridge_cases import Case, cases, value_at

_READS = ("path", "root", "load", "hf_", "config_file", "_json", "image", "cfg", "pretrained", "args", "init_method")
"""What keys of settings contain that read files, or that take objects of Python."""
_NUMBERS = {int: (0, 1, 2, 4, 8, -1, 3), float: (0.0, 0.1, 0.5, 1.0, 2.0, -1.0)}
_NULL: tuple[Any, ...] = (True, 1, 2, 4, "x", [1, 2])
_MOST = 6


def any_cases(bases: Mapping[str, str], count: int, seed: int) -> Iterator[Case]:
    """Configurations of `cases`, with up to six more settings each, of any section, with a value of their type."""
    rng = random.Random(seed)
    dumps = {name: yaml.load(text, yaml.CSafeLoader) for name, text in bases.items()}
    keys = {name: sorted(_drawn(dump)) for name, dump in dumps.items()}
    for case in cases(bases, count, seed):
        dump = dumps[case.base]
        settings = dict(case.settings)
        for key in rng.sample(keys[case.base], rng.randint(1, _MOST)):
            if key not in settings:
                settings[key] = _value(rng, value_at(dump, key))
        yield case._replace(settings=settings)


def _drawn(dump: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in dump.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and "_target_" in value and not value.get("_args_") and "_call_" not in value:
            yield from _drawn(value, f"{key}.")
        elif not isinstance(value, (Mapping, str)) and "." in key and not any(word in key for word in _READS):
            yield key


def _value(rng: random.Random, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    return rng.choice(_NUMBERS.get(type(value), _NULL))
