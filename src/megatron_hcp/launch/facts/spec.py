"""A table entry for one fact, and the short constructor for facts that are fields of megatron-core's config."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal

from megatron_hcp.ground.record import NamedTuple

Type = Literal["size", "int", "bool", "str", "sizes", "comm", "float", "floats", "version", "window", "layers", "any"]


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _Unknown()
"""As a default: an absent key tells nothing."""


class FactSpec(NamedTuple):
    """One fact. `verl` keys write `@.megatron` for the engine's section of a role and `@model` for its model's. A role
    is `actor_rollout_ref.actor`, `actor_rollout_ref.ref`, `critic` or (fine-tuning) `engine`; see `keys_of`.

    `default` is what an absent key means if upstream fills it in; `defaults` overrides it per dialect. Types: size =
    whole number >= 1; sizes = list of whole numbers; floats = a number or a list of several; comm = string or list of
    strings; layers = one layer in n, or a number for each layer, also as Megatron-LM's "([0]*3+[1]*58)". Every type
    allows None unless `default` is a value other than None and upstream's field isn't Optional.
    """

    name: str
    type: Type
    doc: str
    mlm: tuple[str, ...] = ()
    mlm_not: tuple[str, ...] = ()
    bridge: tuple[str, ...] = ()
    verl: tuple[str, ...] = ()
    default: Any = UNKNOWN
    defaults: Mapping[str, Any] = MappingProxyType({})


def field_spec(
    name: str,
    type: Type,
    upstream: str,
    default: Any,
    doc: str,
    *,
    mlm: tuple[str, ...] | None = None,
    mlm_not: tuple[str, ...] = (),
    bridge: tuple[str, ...] | None = None,
    verl: tuple[str, ...] | None = None,
    defaults: Mapping[str, Any] | None = None,
    kept: bool = False,
) -> FactSpec:
    """A field of megatron-core's config: the same name as a flag, under Bridge's `model.` and in verl's override.

    In verl a field that isn't overridden comes from the model's own config: unknown, unless `defaults["verl"]` gives
    what verl sets, or `kept` says that no model in Megatron-Bridge changes the field's default.
    """
    return FactSpec(
        name,
        type,
        doc,
        mlm=(upstream,) if mlm is None else mlm,
        mlm_not=mlm_not,
        bridge=(f"model.{upstream}",) if bridge is None else bridge,
        verl=(f"@.megatron.override_transformer_config.{upstream}",) if verl is None else verl,
        default=default,
        defaults={"verl": default if kept else UNKNOWN, **(defaults or {})},
    )
