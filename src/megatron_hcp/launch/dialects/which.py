"""Which framework a launch belongs to, by its keys and options, and the errors for unsupported ones."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any

from megatron_hcp.ground.errors import HcpError, UnrecognisedError
from megatron_hcp.launch.dialects import foreign
from megatron_hcp.launch.dialects.foreign import WANTED, not_supported
from megatron_hcp.launch.dialects.framework import SINGLE_WORDS, Framework
from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.dialects.table import FACTS, keys_of
from megatron_hcp.launch.fact import Dialect

_PROGRAMS = r"torchrun|deepspeed|python|_target_|\brecipe|\bsrun\b|\bray\b"
"""Programs and keys that tell of training, besides the frameworks' names."""


def dialect_of_keys(keys: Collection[str]) -> Dialect | None:
    """`nemo-rl`, `verl` or `bridge`, by the dotted keys; None if they don't tell or are another framework's.

    >>> dialect_of_keys(["model.context_parallel_size"])
    'bridge'
    >>> dialect_of_keys(["model.path", "engine.context_parallel_size"])
    'verl'
    >>> dialect_of_keys(["model.path", "train.epochs"])
    """
    if (certain := _by_sections(keys)) is not None:
        return certain.name
    if foreign.of_keys(keys):
        return None
    return next((one.name for one in FRAMEWORKS.values() if one.owns(keys)), None)


def _by_sections(keys: Collection[str]) -> Framework | None:
    """The framework that a section tells for certain."""
    return next((one for one in FRAMEWORKS.values() if any(key.startswith(one.sections) for key in keys)), None)


def dialect_of_options(names: Collection[str]) -> Dialect:
    """The dialect of a command line that has only options; names without leading dashes, underscores for dashes.

    >>> dialect_of_options({"num_layers"}), dialect_of_options({"num_layers", "actor_num_nodes"})
    ('mlm', 'slime')
    """
    return next((one.name for one in FRAMEWORKS.values() if one.options.intersection(names)), "mlm")


def has_known_key(dialect: Dialect, keys: Collection[str]) -> bool:
    """Whether some version of the dialect's framework declares one of the keys."""
    return any(FRAMEWORKS[dialect].has_key(key) for key in keys if "." in key or key in SINGLE_WORDS)


def can_be(dialect: Dialect, keys: Collection[str], *, in_file: bool = False) -> bool:
    """Whether keys can belong to a dialect that the user names.

    They can if they identify it, or if one is a misspelling of its keys; for words, also if all are in its sections. A
    file's section, such as `model`, isn't enough.
    """
    framework = FRAMEWORKS[dialect]
    if framework.is_command_line or not keys:
        return False
    certain = _by_sections(keys)
    if framework.sections or certain is not None:
        return certain is framework
    if framework.owns(keys):
        return True
    there = {key.partition(".")[0] for key in keys if "." in key or key not in SINGLE_WORDS}
    if not there <= framework.may_have:
        return False
    if not in_file:
        return True
    from megatron_hcp.launch.dialects.known_keys import near_miss  # imported late: it reads a large file

    return any(near_miss(dialect, key) for key in keys)


def refuse_foreign(keys: Collection[str], target: str) -> None:
    """Raises an `HcpError` that names the framework, if the keys belong to an unsupported one."""
    name = None if _by_sections(keys) else foreign.of_keys(keys)
    if name is not None:
        raise not_supported(target, name)


def refuse_foreign_mapping(data: Mapping[str, Any], keys: Collection[str], target: str) -> None:
    """The same for a whole YAML or JSON mapping, which may also be a model's config.json or one of hcp's own files."""
    schema = data.get("schema")
    if isinstance(schema, str) and schema.startswith("hcp."):
        raise UnrecognisedError(
            f"{target} is one of hcp's own files ({schema}), not a launch", wanted=WANTED, do="give the launch's file"
        )
    if isinstance(data.get("architectures"), list) or {"model_type", "hidden_size"} <= set(data):
        raise UnrecognisedError(
            f"{target} is a model's config.json, not a launch", wanted=WANTED, do="give it with --model"
        )
    name = foreign.of_targets(data) or (None if _by_sections(keys) else foreign.of_keys(keys))
    if name is not None:
        raise not_supported(target, name)


def unknown_dialect(target: str, keys: Iterable[str], forced: Dialect | None = None) -> HcpError:
    """The error for a configuration with none of our keys; names the sections of `keys`, in their order."""
    roots = list(dict.fromkeys(key.partition(".")[0][:40] for key in keys))[:6]
    found = f"it has {', '.join(roots) or 'none'}"
    if forced is not None:
        return HcpError(
            f"{target} has no key of the dialect {forced} ({found})",
            wanted=WANTED,
            do="give the launch's own file, or omit --dialect",
        )
    return UnrecognisedError(
        f"{target} has no key of a known dialect ({found})",
        wanted=WANTED,
        do="give the launch's own file, or name its dialect with --dialect",
    )


def may_be_a_launch(text: str) -> bool:
    """Whether a text has a word that launches have: a program that trains, or a key that only their settings have."""
    named = "|".join(name for one in FRAMEWORKS.values() for name in one.named)
    if re.search(f"{_PROGRAMS}|{named}", text.lower()):
        return True
    names = _names()
    return any(word.replace("-", "_") in names for word in re.findall(r"[A-Za-z]\w*(?:-\w+)*", text))


@cache
def _names() -> frozenset[str]:
    """The last parts of all keys that facts are read from; single words such as `model` would be in any file."""
    keys = (key for spec in FACTS.values() for dialect in FRAMEWORKS for key in keys_of(spec, dialect))
    return frozenset(name for key in keys if "_" in (name := key.rpartition(".")[2]))
