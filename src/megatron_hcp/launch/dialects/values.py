"""Facts by name: what is known, and how a derived fact is added."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from megatron_hcp.launch.fact import Fact

Facts = MutableMapping[str, Fact]


def known(facts: Facts, *names: str) -> bool:
    return all(name in facts for name in names)


def value_of(facts: Facts, name: str) -> Any:
    fact = facts.get(name)
    return None if fact is None else fact.value


def put(facts: Facts, name: str, value: Any, source: str | None = None) -> None:
    """`source` is the fact whose location in the file is used for the derived one."""
    if name not in facts or facts[name].value is None:
        origin = facts.get(source) if source else None
        facts[name] = Fact(value, "derived", origin.location if origin else None, origin.key if origin else None)


def is_before(facts: Facts, name: str, major: int, minor: int) -> bool | None:
    """Whether a version is older than major.minor; None if it is unknown or not a version."""
    words = str(value_of(facts, name)).split(".")[:2]
    if len(words) != 2 or not all(word.isdecimal() for word in words):
        return None
    return (int(words[0]), int(words[1])) < (major, minor)


def expert_tensor_parallel(facts: Facts) -> None:
    """Fills in an expert-tensor-parallel size of null: tp."""
    if known(facts, "etp", "tp") and value_of(facts, "etp") is None:
        put(facts, "etp", value_of(facts, "tp"), "tp")


def packs_by(facts: Facts, switch: str) -> None:
    """Adds how sequences are packed, in a framework with one switch for it."""
    if known(facts, switch):
        put(facts, "packing", "online" if value_of(facts, switch) else "none", switch)
