"""Layers of a model that do not mix tokens by plain attention, as far as they decide what of a layout is legal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_HEAD_DIM, _GROUPS = 64, 8
"""Megatron's channels of a Mamba head and groups, where nobody says them."""
_DELTA_NETS = ("gated_delta_net", "gdn", "gdn2")


class Mixers(NamedTuple):
    """What the layers are beside attention.

    `selects`: sparse attention with an indexer (DSA), whose queries choose their keys from the whole sequence.
    `mamba`: heads and groups of the Mamba layers. `delta_net`: key and value heads of the gated delta nets.
    `pattern`: a pattern names the kind of each layer, without the `|` that would name the stages too.
    """

    selects: bool = False
    mamba: tuple[int, int] | None = None
    delta_net: tuple[int, int] | None = None
    pattern: bool = False


PLAIN = Mixers()
"""Attention in every layer."""


def mixers_of(values: Mapping[str, Any], is_config: bool, hidden_size: int) -> Mixers:
    """The mixers by a config.json's language model (`is_config`) or by the facts of a launch."""
    written = _first(values, "hybrid_pattern", "hybrid_override_pattern", "hybrid_layer_pattern")
    pattern = written if isinstance(written, str) else ""
    kinds = values.get("layers_block_type", values.get("layer_types"))
    variant = _first(values, "attention_variant", "experimental_attention_variant")
    has_mamba = "M" in pattern or (isinstance(kinds, list) and any(str(kind).startswith("mamba") for kind in kinds))
    has_nets = variant in _DELTA_NETS or "G" in pattern or is_config
    return Mixers(
        selects=variant == "dsa" or (is_config and bool(values.get("index_topk"))),
        mamba=_mamba(values, hidden_size) if has_mamba else None,
        delta_net=_delta_net(values) if has_nets else None,
        pattern=(bool(pattern) or has_mamba) and "|" not in pattern,
    )


def _mamba(values: Mapping[str, Any], hidden_size: int) -> tuple[int, int]:
    """As written, or as many heads as fit the mixer's inner width, which is twice the model's."""
    width = _size(values, "mamba_head_dim", "mamba_d_head") or _HEAD_DIM
    heads = _size(values, "mamba_num_heads", "mamba_n_heads") or max(1, 2 * hidden_size // width)
    return heads, _size(values, "mamba_num_groups", "mamba_n_groups", "n_groups") or _GROUPS


def _delta_net(values: Mapping[str, Any]) -> tuple[int, int] | None:
    keys, heads = _size(values, "linear_num_key_heads"), _size(values, "linear_num_value_heads")
    return (keys, heads) if keys and heads else None


def _first(values: Mapping[str, Any], *names: str) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)


def _size(values: Mapping[str, Any], *names: str) -> int | None:
    """A size that is written as one; what is no whole number is left to `hcp check`."""
    found = _first(values, *names)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None
