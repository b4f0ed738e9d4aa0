"""The facts of a model that a plan rests on, out of a config.json or the facts of a launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from megatron_hcp.cost.model_sizes import (
    NAMES,
    ModelSizes,
    experts_by_layer,
    language_values,
    model_sizes,
    size_of,
)
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.plan.mixers import PLAIN, Mixers, mixers_of

_MTP = ("mtp_layers", "mtp_num_layers", "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")
_POSITIONS = ("max_position_embeddings", "n_positions")
_TIED_BY_DEFAULT = ("gemma", "gpt2", "opt", "bloom", "falcon", "phi")
"""Starts of the model types whose config.json leaves tie_word_embeddings out where it is true."""
_QK_NORM_TYPES = ("qwen3", "gemma3", "olmo2", "olmo3")
_SINKS = ("add_swa_attention_sink_bias", "add_full_attention_sink_bias")
_STACKED_TYPES = ("gpt_oss", "qwen3_5")
"""Model types whose checkpoint has the weights of a layer's experts in one tensor: Megatron-Bridge's classes with
is_grouped_export (gpt_oss_bridge.py, qwen35_bridge.py)."""
_FOUR_NORM_TYPES = ("gemma2", "gemma3", "glm4")
"""Model types with a norm after attention and one after the MLP, beside those before them. glm4_moe has none."""
_UNKNOWN_KEYS = {
    "Mamba layers": ("mamba_num_heads", "mamba_n_heads", "mamba_d_state", "ssm_state_size", "ssm_cfg"),
    "linear attention": ("linear_num_key_heads", "linear_num_value_heads", "linear_attn_config"),
    "sparse attention with an indexer (DSA)": ("index_topk", "index_n_heads"),
    "layers described by a pattern": ("hybrid_override_pattern",),
    "chunked attention": ("attention_chunk_size",),
    "attention to compressed keys": ("compress_ratios",),
    "block-sparse attention": ("sparse_attention_config",),
    "hyper-connections": ("hc_mult",),
    "layers of different widths": ("block_configs",),
    "heads of another width in some layers": ("global_head_dim",),
    "a vision encoder": ("vision_config", "visual", "vision_tower", "vit_config"),
    "an audio encoder": ("audio_config",),
    "an encoder with cross attention": ("is_encoder_decoder",),
}
_LEFT_OUT = ("a vision encoder", "an audio encoder", "an encoder with cross attention", "hyper-connections")
_LIKE_ALL = ("layers of different widths", "heads of another width in some layers")
_OF_BLOCKS = ("Mamba layers", "layers described by a pattern")
"""What is counted where a pattern of known blocks says which layers are which."""
_OF_NETS = ("linear attention", "the attention variant gated_delta_net", "the attention variant gdn")
_OF_COMPRESSED = (
    "the attention variant dsv4_hybrid", "attention to compressed keys", "hyper-connections",
    "sparse attention with an indexer (DSA)",
)  # fmt: skip
"""What time counts where the sizes of such layers are known."""
_CONFIG_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "layers_block_type")
"""Names of the number of layers that only a config.json has."""
_MEGATRON_DEFAULTS = ("linear_num_key_heads", "linear_num_value_heads")
"""Keys that Megatron gives a value for every model: there the attention variant says whether it is used."""
MOST_LAYERS, MOST_MTP, MOST_EXPERTS, MOST_NAME = 1024, 16, 1024, 60
_GIVE = "correct it, or give the config.json next to the weights with --model"
_UNKNOWN_LAYERS = {
    "mamba": "Mamba layers", "mamba2": "Mamba layers", "linear_attention": "linear attention",
    "conv": "convolution layers", "recurrent": "recurrent layers",
}  # fmt: skip


@dataclass(frozen=True)
class PlanModel:
    """A decoder-only transformer.

    `is_moe`: for each layer, whether it has experts. `attention_bias`: the QKV projection has a bias; `linear_bias`:
    the other linear layers have one too. `norms`: norms of a layer, 2 or 4. `layernorm`: norms have a bias.
    `max_positions`: tokens of a sequence that the config says it can take, 0 where it says nothing.
    `stacks_experts`: its checkpoint has one tensor for a layer's experts.
    `mixers`: layers beside attention. `kind_unknown`: what of the config no formula covers, in words.
    """

    sizes: ModelSizes
    is_moe: tuple[bool, ...]
    name: str = ""
    mtp: int = 0
    tied: bool = False
    qk_norm: bool = False
    attention_bias: bool = False
    linear_bias: bool = False
    layernorm: bool = False
    sinks: bool = False
    norms: int = 2
    shared_gate: bool = False
    stacks_experts: bool = False
    max_positions: int = 0
    mixers: Mixers = PLAIN
    kind_unknown: tuple[str, ...] = ()

    @cached_property
    def kinds(self) -> frozenset[bool]:
        """False where some layer has a plain MLP, True where some layer has experts."""
        return frozenset(self.is_moe)

    @cached_property
    def layers(self) -> tuple[int, int]:
        """How many have a plain MLP, and how many have experts."""
        experts = sum(self.is_moe)
        return len(self.is_moe) - experts, experts

    def __hash__(self) -> int:
        """By what tells models apart: the search looks up terms by model hundreds of thousands of times."""
        sizes = self.sizes
        return hash((self.name, sizes.num_layers, sizes.hidden_size, sizes.experts, self.mtp))


def plan_model(values: Mapping[str, Any], name: str = "") -> PlanModel:
    """The model in a parsed config.json, or in Megatron's arguments or the facts of a launch by name.

    Raises:
        HcpError: a size is missing, is no whole number, or makes no model; what was found, in one line.
    """
    unknown = _unknown(values)
    values = language_values(values)
    window = values.get("sliding_window")
    if window is not None and not isinstance(window, int):
        raise HcpError(f"model: found sliding_window={window!r:.40}", wanted="a number of tokens or null", do=_GIVE)
    sizes = model_sizes(values)
    _possible(sizes, values)
    kind = str(values.get("model_type") or _kind_by(name))
    is_config = any(key in values for key in _CONFIG_LAYERS)
    linear_bias = bool(values.get("add_bias_linear", kind.startswith(("gpt2", "gpt_neox", "opt", "bloom", "gpt_oss"))))
    bias = values.get("attention_bias") if is_config else values.get("add_qkv_bias")
    layernorm = values.get("normalization", "LayerNorm" if kind in ("gpt2", "gpt_neox", "opt", "bloom") else "RMSNorm")
    mixers = mixers_of(values, is_config, sizes.hidden_size, sizes.num_layers)
    if mixers.blocks is not None and mixers.blocks.layers != sizes.num_layers:
        mixers = mixers._replace(blocks=None)
    known = (_OF_BLOCKS if mixers.blocks else ()) + (_OF_NETS if mixers.nets else ())
    known += _OF_COMPRESSED if mixers.compressed else ()
    unknown = tuple(what for what in unknown if what not in known)
    return PlanModel(
        sizes=sizes,
        is_moe=experts_by_layer(values, sizes.num_layers) if sizes.experts else (False,) * sizes.num_layers,
        name=short_name(name or str(values.get("_name_or_path") or kind)),
        mtp=_prediction_layers(values),
        tied=_is_tied(values, kind),
        qk_norm=bool(
            values.get("qk_layernorm", values.get("use_qk_norm", not sizes.kv_lora and kind.startswith(_QK_NORM_TYPES)))
        ),
        attention_bias=bool(bias) or linear_bias or kind.startswith("qwen2"),
        linear_bias=linear_bias,
        layernorm=layernorm == "LayerNorm",
        sinks=_has_sinks(values, kind),
        norms=4 if kind.startswith(_FOUR_NORM_TYPES) and not kind.startswith("glm4_moe") else 2,
        shared_gate=bool(values.get("moe_shared_expert_gate", kind.startswith(("qwen2_moe", "qwen3_next", "qwen3_5")))),
        stacks_experts=sizes.experts > 0 and kind.startswith(_STACKED_TYPES),
        max_positions=_positions(values),
        mixers=mixers,
        kind_unknown=unknown,
    )


def _has_sinks(values: Mapping[str, Any], kind: str) -> bool:
    """Whether softmax has sinks, in some layer at least."""
    said = values.get("softmax_type", "vanilla") in ("learnable", "off-by-one")
    return said or kind.startswith("gpt_oss") or any(map(values.get, _SINKS))


def _kind_by(name: str) -> str:
    """The start of a model's type by its name on the Hub, where no config.json says the type.

    >>> _kind_by("Qwen/Qwen3-8B"), _kind_by("mine")
    ('qwen3_8b', '')
    """
    return name.partition("/")[2].lower().replace("-", "_").replace(".", "_")


def counted_as(what: str) -> str:
    """How memory and time count a part that no formula covers."""
    if what in _LEFT_OUT:
        return "left out of memory and time"
    return "counted like all others" if what in _LIKE_ALL else "counted as layers of plain attention"


def short_name(name: str) -> str:
    """The name as it is shown: its end where it is long, as a path ends with what tells it apart.

    >>> short_name("llama"), len(short_name("x" * 100))
    ('llama', 60)
    """
    return name if len(name) <= MOST_NAME else "..." + name[-(MOST_NAME - 3) :]


def _positions(values: Mapping[str, Any]) -> int:
    """Tokens that the config says a sequence may have; nothing rests on it but a note, so that no value is an error."""
    found = next((values[name] for name in _POSITIONS if values.get(name) is not None), 0)
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 < found < 1 << 40 else 0


def _prediction_layers(values: Mapping[str, Any]) -> int:
    return next((size for name in _MTP if (size := size_of(values, (name,)))), 0)


def _possible(sizes: ModelSizes, values: Mapping[str, Any]) -> None:
    """HcpError where the sizes make no model."""
    for name in ("ffn", "moe_ffn", "head_dim", "v_dim", "topk"):
        if size_of(values, NAMES[name]) == 0 and (sizes.experts or name != "topk"):
            written = next(word for word in NAMES[name] if values.get(word) is not None)
            raise HcpError(f"model: found {written}=0", wanted="1 or more", do=_GIVE)
    if sizes.experts and not 1 <= sizes.topk <= sizes.experts:
        found = f"found {sizes.topk} experts for a token of {sizes.experts}"
        raise HcpError(f"model: {found}", wanted=f"1 to {sizes.experts}", do=_GIVE)
    if min(sizes.qk_head_dim, sizes.v_head_dim) < 1:
        found = f"found {sizes.heads} heads in a hidden size of {sizes.hidden_size}"
        raise HcpError(f"model: {found}", wanted=f"at most {sizes.hidden_size}", do=_GIVE)
    mtp = _prediction_layers(values)
    limits = (("layers", sizes.num_layers, MOST_LAYERS), ("prediction layers", mtp, MOST_MTP))
    for what, count, most in (*limits, ("experts", sizes.experts, MOST_EXPERTS)):
        if count > most:
            raise HcpError(f"model: found {count} {what}", wanted=f"at most {most}", do=_GIVE)
    if sizes.vocab < 1:
        names = "vocab_size or padded_vocab_size"
        do = "give the config.json next to the weights with --model, or --assume vocab_size=N"
        raise HcpError(f"model: {names} is missing", wanted="the size of the vocabulary", do=do)


def _is_tied(values: Mapping[str, Any], kind: str) -> bool:
    """Whether the embedding is the output's weight too."""
    if isinstance(values.get("untie_embeddings_and_output_weights"), bool):
        return not values["untie_embeddings_and_output_weights"]
    for name in ("share_embeddings_and_output_weights", "tie_word_embeddings"):
        if isinstance(values.get(name), bool):
            return bool(values[name])
    return kind.startswith(_TIED_BY_DEFAULT)


def _unknown(values: Mapping[str, Any]) -> tuple[str, ...]:
    """What of the config no formula covers, in words."""
    both = {**values, **language_values(values)}
    is_config = any(key in both for key in _CONFIG_LAYERS)
    passed = () if is_config else _MEGATRON_DEFAULTS
    found = [what for what, keys in _UNKNOWN_KEYS.items() if any(both.get(key) for key in keys if key not in passed)]
    if both.get("sliding_window") is not None:  # one and the same, where a config.json says both
        found = [what for what in found if what != "chunked attention"]
    variant = both.get("attention_variant", both.get("experimental_attention_variant"))
    if variant:
        found.append(f"the attention variant {str(variant)[:40]}")
    kinds = both.get("layer_types", both.get("layers_block_type"))
    if isinstance(kinds, list):
        found += [_UNKNOWN_LAYERS[kind] for kind in map(str, kinds) if kind in _UNKNOWN_LAYERS]
    return tuple(dict.fromkeys(found))
