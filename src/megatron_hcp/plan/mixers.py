"""Layers of a model that do not mix tokens by plain attention, as far as they decide what of a layout is legal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_HEAD_DIM, _GROUPS, _STATE = 64, 8, 128
"""Megatron's channels of a Mamba head, groups, and channels of a state, where nobody says them."""
_NET_DIM, _ATTENTION_EVERY = 128, 4
"""Megatron's width of a delta net's head; every fourth layer has attention in all models that have such layers."""
_OF_COMPRESSED = (
    "head_dim", "q_lora_rank", "o_groups", "o_lora_rank", "sliding_window", "index_n_heads", "index_head_dim",
    "index_topk",
)  # fmt: skip
_DELTA_NETS = ("gated_delta_net", "gdn", "gdn2")


class Blocks(NamedTuple):
    """A model in which a layer is one block, by its pattern: how many layers are of each kind, and Mamba's sizes.

    `attention` and `mlp` layers have nothing else, and those with experts have no attention.
    """

    layers: int
    attention: int
    mamba: int
    mlp: int
    mamba_inner: int
    """Channels of all heads."""
    mamba_states: int
    """Channels of B and C over all groups, together."""
    mamba_heads: int

    @property
    def mamba_in(self) -> int:
        """Outputs of the projection before a Mamba mixer: gate, input, B, C, and a step for each head."""
        return 2 * self.mamba_inner + self.mamba_states + self.mamba_heads


class DeltaNets(NamedTuple):
    """Layers that are gated delta nets: how many, their heads and the width of each."""

    layers: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int


class Compressed(NamedTuple):
    """DeepSeek-V4's attention: one key for all heads, of a window and of places that stand for several tokens each.

    `ratios`: of each layer, how many tokens a place stands for; 0 where there is the window alone. `streams`: of the
    residual, which hyper-connections mix; 0 without them.
    """

    ratios: tuple[int, ...]
    head_dim: int
    q_lora: int
    groups: int
    o_lora: int
    window: int
    index_heads: int
    index_dim: int
    topk: int
    streams: int


class Mixers(NamedTuple):
    """What the layers are beside attention.

    `selects`: sparse attention with an indexer (DSA), whose queries choose their keys from the whole sequence.
    `mamba`: heads and groups of the Mamba layers. `delta_net`: key and value heads of the gated delta nets.
    `pattern`: a pattern names the kind of each layer, without the `|` that would name the stages too. `blocks`: what it
    counts, where each layer is one block. `nets`, `compressed`: the sizes of such layers, where all are known.
    """

    selects: bool = False
    mamba: tuple[int, int] | None = None
    delta_net: tuple[int, int] | None = None
    pattern: bool = False
    blocks: Blocks | None = None
    nets: DeltaNets | None = None
    compressed: Compressed | None = None

    def block_bytes(self, layers: int) -> int:
        """Bytes of a block of vLLM's cache, of which each running sequence takes one; 0 if none of the model's layers
        is recurrent. It has the state in fp32 and the convolution's last three inputs, for as many layers as the rarer
        kind has.

        Source: get_kv_cache_groups of kv_cache_utils.py and mamba_utils.py of vLLM; 108 blocks in the 1.74 GiB that
        Qwen3.5 9B had left on one GPU.
        """
        if self.nets:
            values = self.nets.value_heads * self.nets.value_dim
            state, inputs = values * self.nets.key_dim, values + 2 * self.nets.key_heads * self.nets.key_dim
            layers = min(self.nets.layers, layers - self.nets.layers)
        elif self.blocks and self.mamba:
            inner, both = self.blocks.mamba_inner, self.blocks.mamba_states
            state, inputs = inner * both // (2 * max(1, self.mamba[1])), inner + both
            layers = min(self.blocks.mamba, self.blocks.attention)
        else:
            return 0
        return layers * (4 * state + 3 * 2 * inputs)

    @property
    def like_attention(self) -> str:
        """The layers whose memory is counted like that of plain attention, in words; "" where there are none."""
        if self.nets:
            return "gated delta nets"
        return "attention to compressed keys" if self.compressed else ""


PLAIN = Mixers()
"""Attention in every layer."""


def mixers_of(values: Mapping[str, Any], is_config: bool, hidden_size: int, layers: int) -> Mixers:
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
        blocks=_blocks(values, pattern, hidden_size) if has_mamba and pattern else None,
        nets=_nets(values, pattern, layers) if has_nets else None,
        compressed=_compressed(values, layers),
    )


def _nets(values: Mapping[str, Any], pattern: str, layers: int) -> DeltaNets | None:
    """By the kinds of a config.json or a pattern, or every layer but one of so many; else Megatron's widths."""
    heads, kinds = _delta_net(values), values.get("layer_types")
    every = _size(values, "linear_attention_freq", "full_attention_interval") or _ATTENTION_EVERY
    count = kinds.count("linear_attention") if isinstance(kinds, list) else layers - layers // every
    if "G" in pattern:
        count = pattern.partition("/")[0].count("G")
    if heads is None or not 0 < count <= layers:
        return None
    keys, wide = (_size(values, f"linear_{name}_head_dim") or _NET_DIM for name in ("key", "value"))
    return DeltaNets(count, *heads, keys, wide)


def _compressed(values: Mapping[str, Any], layers: int) -> Compressed | None:
    """By the fields of a config.json, or those that the table of known models has of it."""
    known = values.get("csa")
    found = known if isinstance(known, Mapping) else values
    ratios, sizes = found.get("compress_ratios"), [_size(found, name) for name in _OF_COMPRESSED]
    if not isinstance(ratios, list) or len(ratios) < layers or not all(sizes):
        return None
    if not all(isinstance(ratio, int) and ratio >= 0 for ratio in ratios):
        return None
    named = {name: size or 0 for name, size in zip(Compressed._fields[1:], (*sizes, _size(found, "hc_mult")))}
    return Compressed(tuple(ratios[:layers]), **named)


def _blocks(values: Mapping[str, Any], pattern: str, hidden_size: int) -> Blocks | None:
    """The blocks of a pattern of M, *, - and E; None for one with other letters.

    Source: Symbols of hybrid_layer_allocation.py, megatron-core.
    """
    layers = pattern.partition("/")[0].replace("|", "")
    if set(layers) - set("M*-E"):
        return None
    heads, groups = _mamba(values, hidden_size)
    width = _size(values, "mamba_head_dim", "mamba_d_head") or _HEAD_DIM
    state = _size(values, "mamba_state_dim", "ssm_state_size", "mamba_d_state") or _STATE
    attention, mamba, mlp = (layers.count(letter) for letter in "*M-")
    return Blocks(len(layers), attention, mamba, mlp, heads * width, 2 * groups * state, heads)


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
