"""What a hybrid model's layer pattern determines: Megatron-LM, `validate_args`, since megatron-core 0.17."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from megatron_hcp.launch.dialects.values import Facts, is_before
from megatron_hcp.launch.fact import Fact

_OLDER_KEY = "hybrid_override_pattern"
"""The key before 0.17, when the pattern was read in addition to the number of layers, not instead of it."""
_DSA = "D"
_MLA = "+"
_DSV4 = frozenset("CHW")


def derive_from_pattern(facts: Facts, unknown: MutableMapping[str, str]) -> None:
    """Replaces, in place, what a command line's pattern sets regardless of its other options."""
    pattern = facts.get("hybrid_pattern")
    if pattern is None or not isinstance(pattern.value, str):
        return

    def put(name: str, value: Any) -> None:
        facts[name] = Fact(value, "derived", pattern.location, pattern.key)

    main, *prediction = pattern.value.split("/")
    layers = len(main.replace("|", ""))
    stated = facts.get("num_layers")
    if stated is None or stated.value != layers:
        adds = is_before(facts, "mcore", 0, 17) if pattern.key == _OLDER_KEY else False
        if adds is False:
            put("num_layers", layers)
        elif adds is None:
            facts.pop("num_layers", None)
            unknown["num_layers"] = f"megatron-core 0.17 and newer count the layers of {pattern.key}, older ones do not"
    if prediction and prediction[0]:
        put("mtp_layers", len(prediction))
    if _DSA in pattern.value or _MLA in pattern.value:
        put("mla", True)
    variant = _variant(facts, pattern.value)
    if variant is not None:
        put("attention_variant", variant)


def _variant(facts: Mapping[str, Fact], pattern: str) -> str | None:
    """The attention variant that the pattern sets: on main always, on dev only if none is stated."""
    stated = facts.get("attention_variant")
    on_dev = "mcore_branch" in facts and facts["mcore_branch"].value == "dev"
    if stated is not None and stated.value is not None and on_dev:
        return None
    if not _DSV4.isdisjoint(pattern):  # symbols that only dev knows
        return "dsv4_hybrid"
    return "dsa" if _DSA in pattern else None
