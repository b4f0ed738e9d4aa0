"""Upstream's own keys, and the one that a misspelled key was meant to be."""

from __future__ import annotations

from functools import cache, lru_cache

from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.fact import Dialect


def is_known(dialect: Dialect, key: str) -> bool:
    """Whether some version of upstream declares the key (an option's name, or a dotted path)."""
    known, name = FRAMEWORKS[dialect].known(key)
    return name in known or _is_private(key)


@lru_cache(maxsize=10_000)
def near_miss(dialect: Dialect, key: str) -> str | None:
    """The known key that is one edit away from an unknown one (a letter added, removed, changed, or two swapped).

    None for a known key, and if no known key is that close. For verl's override sections the field is compared.

    >>> near_miss("mlm", "hierarchical_context_parallel_size")
    'hierarchical_context_parallel_sizes'
    """
    known, name = FRAMEWORKS[dialect].known(key)
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


def names_of(dialect: Dialect) -> frozenset[str]:
    """The names of all known options, without the sections that they stand in."""
    return FRAMEWORKS[dialect].names()


@cache
def _by_length(known: frozenset[str]) -> dict[int, list[str]]:
    lengths: dict[int, list[str]] = {}
    for key in sorted(known):
        lengths.setdefault(len(key), []).append(key)
    return lengths
