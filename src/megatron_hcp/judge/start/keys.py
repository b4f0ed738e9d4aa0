"""Where a launch writes what upstream's code calls by its own name."""

from __future__ import annotations

from typing import Any

from megatron_hcp.ground.place import Location
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.dialects.frameworks import COMMAND_LINES
from megatron_hcp.launch.dialects.table import FACTS, index_of, keys_of
from megatron_hcp.launch.fact import Launch, Setting

_SECTIONS = ("model", "ddp", "optimizer", "train", "dataset", "checkpoint", "mixed_precision", "dist", "scheduler")
"""Sections of Bridge's container, whose fields are those of megatron-core's configs."""
_OWNERS = frozenset(("args", "self", "config", "ddp_config", "optimizer_config", "cfg", "kwargs"))
_STATED = frozenset(("launch", "assumed", "installed", "derived", "model", "model-name", "recipe", "sourced"))
"""Origins of facts that the launch, or what it was checked with, states: not upstream's defaults."""
_SWITCHED_OFF = ("no_", "disable_", "non_")
"""How options of Megatron-LM start that switch a field off."""


def fact_of(launch: Launch, name: str) -> str | None:
    """The fact that a field or an argument of upstream is, such as `num_experts` for `num_moe_experts`; None: no fact.

    `name` is a field (`self.num_moe_experts`), an argument (`args.num_experts`), a variable, or a dotted key of the
    launch (`model.num_moe_experts`).
    """
    name = _bare(name)
    own = index_of(launch.dialect, launch.reading.role)
    for key in _spellings(name):
        if key in own:
            return own[key].fact
    fields = index_of("bridge")
    entry = next((fields[key] for key in _spellings(name) if key in fields), None) or index_of("mlm").get(name)
    return entry.fact if entry else None


class Spot(NamedTuple):
    """A setting in the launch's own words: its fact, if it is one, its key, and whether and where it is stated."""

    fact: str | None
    key: str
    location: Location | None = None
    is_written: bool = False


def spot_of(launch: Launch, name: str) -> Spot:
    """Where the launch writes it, or the key under which it would."""
    name = _bare(name)
    name_of_fact = fact_of(launch, name)
    fact = launch.facts.get(name_of_fact or "")
    if fact is not None and (fact.key is not None or fact.origin in _STATED):
        return Spot(name_of_fact, fact.key or _first_key(launch, name_of_fact, name), fact.location, True)
    setting = _setting_of(launch, name)
    if setting is not None:
        return Spot(name_of_fact, setting.key, setting.location, True)
    return Spot(name_of_fact, _first_key(launch, name_of_fact, name))


def _first_key(launch: Launch, fact: str | None, name: str) -> str:
    keys = keys_of(FACTS[fact], launch.dialect, launch.reading.role) if fact else ()
    return keys[0] if keys else _option_of(launch, name)


def written_value(launch: Launch, spot: Spot) -> Any:
    """The value of a setting that the launch writes."""
    fact = launch.facts.get(spot.fact or "")
    if fact is not None:
        return fact.value
    value = next((item.value for item in launch.reading.settings[::-1] if item.key == spot.key), None)
    if launch.dialect in COMMAND_LINES and isinstance(value, list):
        return " ".join(map(str, value)) or True
    return value


def _option_of(launch: Launch, name: str) -> str:
    """The option that sets an argument: Megatron-LM has only `--no-x` for some."""
    if launch.dialect not in COMMAND_LINES:
        return name
    from megatron_hcp.launch.facts.known_options import all_options

    options = all_options()
    return next((key for key in (name, *(prefix + name for prefix in _SWITCHED_OFF)) if key in options), name)


def _setting_of(launch: Launch, name: str) -> Setting | None:
    """What the launch writes for it: of a key that is repeated, the last."""
    field = name.rpartition(".")[2]
    settings = launch.reading.settings[::-1]
    if launch.dialect in COMMAND_LINES:
        wanted = {field, *(prefix + field for prefix in _SWITCHED_OFF)}
        return next((setting for setting in settings if setting.key in wanted), None)
    exact = next((setting for setting in settings if setting.key == name), None)
    if exact is not None or "." in name:
        return exact
    return next((setting for setting in settings if setting.key.rpartition(".")[2] == field), None)


def _bare(name: str) -> str:
    """The name without the object that upstream's function calls it by."""
    owner, dot, field = name.partition(".")
    return field if dot and owner in _OWNERS else name


def _spellings(name: str) -> list[str]:
    if "." in name:
        return [name]
    return [name, *(prefix + name for prefix in _SWITCHED_OFF), *(f"{section}.{name}" for section in _SECTIONS)]
