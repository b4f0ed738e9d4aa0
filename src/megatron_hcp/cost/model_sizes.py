"""The model sizes that determine its compute, from a config.json, Megatron's arguments, or the facts of a launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.record import NamedTuple

LANGUAGE_SECTIONS = ("text_config", "llm_config", "language_config", "thinker_config.text_config")
"""Where a multimodal config.json keeps its language model; a dot separates nested sections."""

NAMES: dict[str, tuple[str, ...]] = {
    "num_layers": ("num_layers", "num_hidden_layers", "n_layer", "n_layers"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "heads": ("heads", "num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("kv_heads", "num_query_groups", "num_key_value_heads", "num_kv_heads"),
    "head_dim": ("head_dim", "kv_channels"),
    "ffn": ("ffn_hidden_size", "dense_intermediate_size", "intermediate_size_mlp", "intermediate_size", "n_inner"),
    "vocab": ("padded_vocab_size", "vocab_size"),
    "experts": ("num_experts", "num_moe_experts", "n_routed_experts", "num_local_experts"),
    "topk": ("moe_router_topk", "num_experts_per_tok", "moe_topk", "top_k_experts", "num_experts_per_token"),
    "moe_ffn": ("moe_ffn_hidden_size", "moe_intermediate_size", "ffn_hidden_size", "intermediate_size"),
    "shared_ffn": (
        "moe_shared_expert_intermediate_size",
        "shared_expert_intermediate_size",
        "shared_intermediate_size",
        "share_expert_dim",
    ),
    "expert_hidden": ("moe_latent_size", "routed_expert_hidden_size"),
    "shared_experts": ("n_shared_experts", "num_shared_experts"),
    "dense_layers": ("first_k_dense_replace",),
    "q_lora": ("q_lora_rank",),
    "kv_lora": ("kv_lora_rank",),
    "qk_nope": ("qk_nope_head_dim", "qk_head_dim"),
    "qk_rope": ("qk_pos_emb_head_dim", "qk_rope_head_dim"),
    "v_dim": ("v_head_dim",),
}
"""Each size and its names in facts, in Megatron-Core, in config.json. The names don't conflict."""


_ASSUMED_MLP = {"ffn": "width of the MLP"}
_ASSUMED_EXPERTS = {"moe_ffn": "width of the experts", "topk": "experts per token"}
_ASSUMED_LATENT = {"kv_lora": "width of the compressed K and V"}
_ASSUMED_HEAD = {"vocab": "vocabulary"}
"""The sizes that have a customary default, in words."""


class ModelSizes(NamedTuple):
    """Sizes that determine a forward pass. `windows`: the sliding window of each layer that has one, in tokens."""

    num_layers: int
    hidden_size: int
    heads: int
    kv_heads: int
    qk_head_dim: int
    v_head_dim: int
    dense_ffn: int
    dense_layers: int
    gated: bool
    vocab: int = 0
    topk: int = 0
    moe_ffn: int = 0
    shared_ffn: int = 0
    experts: int = 0
    q_lora: int = 0
    kv_lora: int = 0
    qk_rope: int = 0
    windows: tuple[int, ...] = ()
    expert_hidden: int = 0
    """Width of the rows that reach routed experts where it is not the model's: they are projected there and back."""

    @property
    def routed_hidden(self) -> int:
        """Width of a row that is sent to an expert."""
        return self.expert_hidden or self.hidden_size

    @property
    def latent_weights(self) -> int:
        """Elements of the projections to the experts' own width and back; none where it is the model's."""
        return 2 * self.hidden_size * self.expert_hidden

    @property
    def linear_flops(self) -> float:
        """Floating-point operations per token of everything but attention scores, forward, all layers and the head."""
        hidden, matrices = self.hidden_size, 3 if self.gated else 2
        dense = matrices * hidden * self.dense_ffn
        routed = matrices * self.routed_hidden * self.topk * self.moe_ffn + self.latent_weights
        moe = matrices * hidden * self.shared_ffn + routed + hidden * self.experts
        moe_layers = self.num_layers - self.dense_layers
        weights = self.num_layers * self._projections + self.dense_layers * dense + moe_layers * moe
        return 2.0 * (weights + hidden * self.vocab)

    @property
    def _projections(self) -> int:
        hidden, heads, kv = self.hidden_size, self.heads, self.kv_heads
        if not self.kv_lora:
            return hidden * (heads * self.qk_head_dim + kv * (self.qk_head_dim + self.v_head_dim)) + (
                heads * self.v_head_dim * hidden
            )
        queries = heads * self.qk_head_dim
        query = hidden * self.q_lora + self.q_lora * queries if self.q_lora else hidden * queries
        nope = self.qk_head_dim - self.qk_rope
        keys = hidden * (self.kv_lora + self.qk_rope) + self.kv_lora * heads * (nope + self.v_head_dim)
        return query + keys + heads * self.v_head_dim * hidden

    @property
    def attention_flops(self) -> float:
        """Operations of one layer per token squared, causal, forward: half of Q K^T and of P V."""
        return float(self.heads * (self.qk_head_dim + self.v_head_dim))


def model_sizes(values: Mapping[str, Any]) -> ModelSizes:
    """The sizes in a parsed config.json, in Megatron's arguments (`vars(args)`) or configuration, or in facts by name.

    Absent sizes get the customary default: one KV head per head, head_dim = hidden_size / heads, a gated MLP of the
    configured width (4 * hidden_size without one), no experts (else two per token), no window.

    Raises:
        HcpError: layers, hidden size or heads are missing, or a size isn't a whole number >= 0.
    """
    values = language_values(values)
    size = {name: size_of(values, names) for name, names in NAMES.items()}
    kinds = values.get("layers_block_type")
    if size["num_layers"] is None and isinstance(kinds, list):
        size["num_layers"] = len(kinds)
    for name in ("num_layers", "hidden_size", "heads"):
        if not size[name]:
            raise HcpError(
                f"model: {' or '.join(NAMES[name][:2])} is missing", do="give the config.json next to the weights"
            )
    layers, hidden, heads = size["num_layers"] or 0, size["hidden_size"] or 0, size["heads"] or 0
    grouped = values.get("group_query_attention") is not False
    kv_heads = (size["kv_heads"] if grouped else None) or heads
    if size["kv_heads"] == 0 or heads % kv_heads:
        raise HcpError(f"model: found {size['kv_heads']} KV heads for {heads} heads", wanted="a divisor of them")
    head_dim = size["head_dim"] or hidden // heads
    qk, v, lora = head_dim, head_dim, 0
    if values.get("multi_latent_attention", values.get("mla", size["kv_lora"] is not None)):
        lora, kv_heads = size["kv_lora"] or 512, heads
        rope = size["qk_rope"] or 0
        qk, v = (size["qk_nope"] or head_dim) + rope, size["v_dim"] or head_dim
    dense = layers - sum(experts_by_layer(values, layers)) if size["experts"] else layers
    moe_ffn = size["moe_ffn"] or size["ffn"] or 4 * hidden
    always = 1 if str(values.get("model_type")).startswith("llama4") else 0  # its config.json does not say it
    shared = size["shared_ffn"] or (size["shared_experts"] or always) * moe_ffn
    return ModelSizes(
        num_layers=layers, hidden_size=hidden, heads=heads, kv_heads=kv_heads, qk_head_dim=qk, v_head_dim=v,
        dense_ffn=size["ffn"] or 4 * hidden, dense_layers=dense, gated=is_gated(values), vocab=size["vocab"] or 0,
        topk=(size["topk"] or 2) if size["experts"] else 0, moe_ffn=moe_ffn if size["experts"] else 0,
        shared_ffn=shared if size["experts"] else 0, experts=size["experts"] or 0,
        q_lora=(size["q_lora"] or 0) if lora else 0, kv_lora=lora, qk_rope=(size["qk_rope"] or 0) if lora else 0,
        windows=_windows(values, layers), expert_hidden=(size["expert_hidden"] or 0) if size["experts"] else 0,
    )  # fmt: skip


def language_values(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of the language model: those of a multimodal config.json's own section before the top level's.

    >>> language_values({"hidden_size": 1, "text_config": {"hidden_size": 64}})["hidden_size"]
    64
    """
    nested = next((found for path in LANGUAGE_SECTIONS if isinstance(found := value_at(values, path), Mapping)), None)
    return values if nested is None else {**values, **nested}


def value_at(values: Any, path: str) -> Any:
    """The value at a dotted path of nested mappings, None if there is none."""
    for part in path.split("."):
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def assumed_sizes(values: Mapping[str, Any]) -> list[str]:
    """The sizes for which `model_sizes` finds no value and uses the customary default, which estimates then depend on.

    >>> assumed_sizes({"num_layers": 2, "hidden_size": 64, "heads": 4, "ffn_hidden_size": 256})
    ['vocabulary']
    """
    values = language_values(values)
    has_experts = bool(size_of(values, NAMES["experts"]))
    wanted = dict(_ASSUMED_EXPERTS if has_experts else _ASSUMED_MLP)
    if values.get("multi_latent_attention", values.get("mla")):
        wanted |= _ASSUMED_LATENT
    assumed = [text for name, text in {**wanted, **_ASSUMED_HEAD}.items() if not size_of(values, NAMES[name])]
    if has_experts and isinstance(values.get("moe_layer_freq"), str):  # a pattern that couldn't be read
        assumed.append("that all layers have experts")
    return assumed


def size_of(values: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """The first of the names that has a value, as a whole number >= 0; HcpError if it isn't one."""
    name = next((name for name in names if values.get(name) is not None), None)
    if name is None:
        return None
    value = values[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 40:
        raise HcpError(f"model: found {name}={value!r:.40}", wanted="a whole number")
    return value


def is_gated(values: Mapping[str, Any]) -> bool:
    """Whether the MLP is gated (three matrices): by Megatron's option, else by the activation in a config.json."""
    for name in ("gated_linear_unit", "swiglu"):
        if isinstance(values.get(name), bool):
            return bool(values[name])
    activation = str(values.get("hidden_act") or values.get("mlp_hidden_act") or "silu")
    return not ("ffn_hidden_size" in values or activation.startswith(("gelu_new", "relu")))


def experts_by_layer(values: Mapping[str, Any], layers: int) -> tuple[bool, ...]:
    """Which layers of a model with experts have some, by Megatron's moe_layer_freq or the fields of a config.json.

    >>> experts_by_layer({"hybrid_override_pattern": "ME*E"}, 4)
    (False, True, False, True)
    """
    kinds = values.get("layers_block_type")
    pattern = values.get("hybrid_pattern", values.get("hybrid_override_pattern"))
    if isinstance(pattern, str) and "E" in pattern:
        kinds = ["moe" if kind == "E" else kind for kind in pattern.partition("/")[0].replace("|", "")]
    if isinstance(kinds, list) and "moe" in kinds:
        return tuple(kinds[layer % len(kinds)] == "moe" for layer in range(layers))
    every = values.get("moe_layer_freq", values.get("decoder_sparse_step", values.get("interleave_moe_layer_step")))
    first = size_of(values, ("first_k_dense_replace", "moe_layer_start_index")) or 0
    if isinstance(every, list | tuple) and every:
        return tuple(bool(every[layer % len(every)]) for layer in range(layers))
    step = every if isinstance(every, int) and not isinstance(every, bool) and every > 1 else 1
    # Megatron counts from the first layer of a group, config.json's steps from its last.
    last = step - 1 if "moe_layer_freq" not in values else 0
    dense = values.get("mlp_only_layers")
    left_out = set(dense) if isinstance(dense, list) else set()
    return tuple(layer >= first and layer % step == last and layer not in left_out for layer in range(layers))


def _windows(values: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    """The window of each layer that has one: Megatron's (left, right), or the tokens of a config.json."""
    window = values.get("window_size")
    if isinstance(window, list | tuple) and len(window) == 2 and isinstance(window[0], int) and window[0] >= 0:
        tokens = window[0] + 1
    else:
        found = values.get("sliding_window")
        if values.get("use_sliding_window") is False or isinstance(found, bool) or not isinstance(found, int):
            return ()
        tokens = found
    skip = values.get("window_attn_skip_freq", values.get("sliding_window_pattern", values.get("hybrid_layer_pattern")))
    kinds = values.get("layer_types")
    if isinstance(kinds, list):
        count = sum(kind == "sliding_attention" for kind in kinds)
    elif isinstance(skip, list | tuple):
        count = sum(map(bool, skip))
    elif isinstance(skip, int) and not isinstance(skip, bool) and skip > 0:
        count = layers - layers // skip
    else:
        count = layers
    return (tokens,) * min(count, layers) if tokens > 0 else ()
