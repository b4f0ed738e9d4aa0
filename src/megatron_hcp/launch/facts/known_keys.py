"""Upstream's own keys, and the one that a misspelled key was meant to be."""

from __future__ import annotations

import os
from functools import cache

from megatron_hcp.launch.fact import Dialect
from megatron_hcp.launch.facts.known_options import all_options

_OPEN_SECTIONS = {  # verl: what is below these is a field of the named class
    "override_transformer_config": "transformer",
    "override_mcore_model_config": "transformer",
    "override_ddp_config": "ddp",
    "override_optimizer_config": "optimizer",
}


def is_known(dialect: Dialect, key: str) -> bool:
    """Whether some version of upstream declares the key (an option's name, or a dotted path)."""
    known, name = _candidates(dialect, key)
    return name in known or _is_private(key)


def near_miss(dialect: Dialect, key: str) -> str | None:
    """The known key that is one edit away from an unknown one (a letter added, removed, changed, or two swapped).

    None for a known key, and if no known key is that close. For verl's override sections the field is compared.

    >>> near_miss("mlm", "hierarchical_context_parallel_size")
    'hierarchical_context_parallel_sizes'
    """
    known, name = _candidates(dialect, key)
    if name in known or len(name) < 4 or _is_private(key):
        return None
    by_length = _by_length(known)
    for length in (len(name), len(name) + 1, len(name) - 1):
        for candidate in by_length.get(length, ()):
            if one_edit_apart(name, candidate):
                return key[: len(key) - len(name)] + candidate
    return None


def _is_private(key: str) -> bool:
    """`_target_`, `_args_`, …: how a dumped config names classes."""
    return key.rpartition(".")[2].startswith("_")


def one_edit_apart(first: str, second: str) -> bool:
    """Whether one insertion, deletion, substitution or swap of neighbours turns one string into the other.

    >>> one_edit_apart("abcd", "abdc"), one_edit_apart("abc", "abcd"), one_edit_apart("abcd", "badc")
    (True, True, False)
    """
    if len(first) > len(second):
        first, second = second, first
    if len(second) - len(first) > 1 or first == second:
        return False
    start = 0
    while start < len(first) and first[start] == second[start]:
        start += 1
    if len(first) < len(second):
        return first[start:] == second[start + 1 :]
    if first[start + 1 :] == second[start + 1 :]:
        return True
    swapped = first[start : start + 2] == second[start : start + 2][::-1]
    return swapped and first[start + 2 :] == second[start + 2 :]


def _candidates(dialect: Dialect, key: str) -> tuple[frozenset[str], str]:
    """(the known names, the part of the key that is one of them)."""
    if dialect == "mlm":
        return _command_line(), key
    if dialect == "slime":
        # Options with this prefix are SGLang's or its router's, and are passed on.
        return (frozenset((key,)) if key.startswith(("sglang_", "router_")) else _slime()), key
    if dialect == "ms-swift":
        return _section("ms-swift"), key
    if dialect == "nemo-rl":
        head, found, field = key.partition(".model_overrides.")
        if found:
            return _section("transformer"), field
        # Other sections are for users' own data and environments.
        return (_section("nemo-rl") if key.startswith(("policy.", "cluster.")) else frozenset((key,))), key
    if dialect == "verl":
        for section, name in _OPEN_SECTIONS.items():
            head, found, field = key.partition(f".{section}.")
            if found and head:
                return _section(name), field
        return _section("verl"), key
    return _section("bridge"), key


def names_of(dialect: Dialect) -> frozenset[str]:
    """The names of all known options, without the sections that they stand in."""
    if dialect in ("mlm", "slime"):
        return _command_line() if dialect == "mlm" else _slime()
    own = {key.rpartition(".")[2] for key in _section(dialect)}
    return frozenset(own | _section("transformer"))


@cache
def _command_line() -> frozenset[str]:
    """The options of Megatron-LM's own parser, and those of its other programs."""
    return _section("mlm") | all_options()


@cache
def _slime() -> frozenset[str]:
    """Megatron-LM's options, and those that slime and miles add."""
    return _command_line() | _section("slime")


@cache
def _section(name: str) -> frozenset[str]:
    """The keys of one section of the file, which has a line per parent: `model.transformer: name name`."""
    text = _text().partition(f"[{name}]\n")[2].partition("\n[")[0]
    keys: set[str] = set()
    for line in text.splitlines():
        parent, _, names = line.partition(": ")
        keys.update(names.split() if parent == "-" else [f"{parent}.{name}" for name in names.split()])
    return frozenset(keys)


@cache
def _text() -> str:
    with open(os.path.join(os.path.dirname(__file__), "known_keys.txt"), encoding="utf-8") as file:
        return file.read()


@cache
def _by_length(known: frozenset[str]) -> dict[int, list[str]]:
    lengths: dict[int, list[str]] = {}
    for key in sorted(known):
        lengths.setdefault(len(key), []).append(key)
    return lengths
