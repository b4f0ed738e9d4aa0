"""What verl computes from its settings, and the defaults that depend on others."""

from __future__ import annotations

from collections.abc import MutableMapping

from megatron_hcp.launch.dialects.values import Facts, expert_tensor_parallel, is_before, packs_by, value_of
from megatron_hcp.launch.fact import Fact

_ON = Fact(True, "launch")


def derive(facts: Facts, unknown: MutableMapping[str, str]) -> None:
    """Adds the derived facts, in place."""
    expert_tensor_parallel(facts)
    if value_of(facts, "tp") == 1 and facts.get("sequence_parallel", _ON).origin == "default":
        facts["sequence_parallel"] = Fact(False, "default")  # its default is True, and it switches it off at tp=1
    if is_before(facts, "verl", 0, 6) and facts.get("attention_backend", _ON).origin == "default":
        facts["attention_backend"] = Fact("auto", "default")  # of megatron-core; verl has its own default since 0.6
    if is_before(facts, "verl", 0, 7) and "use_mbridge" not in facts and "use_mbridge" not in unknown:
        facts["use_mbridge"] = Fact(False, "default")  # verl builds the model itself; the default is True since 0.7
    replay = facts.get("router_replay", _ON).key or ""
    if replay.endswith("actor.router_replay.mode") and is_before(facts, "verl", 0, 8) is False:
        facts["router_replay"] = Fact("disabled", "default")  # since 0.8 the engine's own key alone is read
    packs_by(facts, "use_remove_padding")
