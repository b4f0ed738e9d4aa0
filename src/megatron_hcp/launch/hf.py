"""A Hugging Face config.json as model facts, named as megatron-core names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from megatron_hcp.cost.model_sizes import LANGUAGE_SECTIONS, NAMES, is_gated, value_at
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.place import Location
from megatron_hcp.launch.fact import Fact

_DO = "give the one next to the model's weights"


_SIZES: dict[str, tuple[str, ...]] = {
    "num_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "num_query_groups": ("num_key_value_heads", "num_kv_heads", "attn_config.kv_n_heads", "multi_query_group_num"),
    "head_dim": ("head_dim",),
    "num_experts": ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"),
    "mtp_layers": ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers"),
    "linear_num_key_heads": ("linear_num_key_heads",),
    "linear_num_value_heads": ("linear_num_value_heads",),
    "mamba_num_heads": ("mamba_num_heads", "mamba_n_heads"),
    "mamba_num_groups": ("mamba_n_groups", "n_groups"),
    "mamba_head_dim": ("mamba_head_dim", "mamba_d_head"),
}
_COMPRESSED = ("compress_ratios", "compress_rates")
_VARIANTS = dict.fromkeys(_COMPRESSED, "dsv4_hybrid") | {"index_topk": "dsa", "linear_num_key_heads": "gated_delta_net"}
_MLA = {"qk_head_dim": "qk_nope_head_dim", "qk_pos_emb_head_dim": "qk_rope_head_dim", "v_head_dim": "v_head_dim"}
_WORK = {
    "ffn_hidden_size": "ffn", "vocab_size": "vocab", "q_lora_rank": "q_lora", "kv_lora_rank": "kv_lora",
}  # fmt: skip
_EXPERTS = {
    "moe_router_topk": "topk", "moe_ffn_hidden_size": "moe_ffn", "moe_shared_expert_intermediate_size": "shared_ffn",
}  # fmt: skip
"""What else determines a model's compute, by the names in `core.cost.model_sizes`; the second for experts only."""
SIZE_FIELDS = frozenset(
    (*(name.rpartition(".")[2] for names in _SIZES.values() for name in names), *_MLA.values(), "kv_lora_rank")
)
"""The fields of a config.json that hold those, and what makes attention latent."""
STATED = frozenset((*_SIZES, "kv_heads", "mla", "vision"))
"""The facts that every language model's config.json determines."""
SIZES = STATED - {"mtp_layers"} | {*_MLA, "ffn_hidden_size", "q_lora_rank", "kv_lora_rank", *_EXPERTS}
"""The facts that are the same wherever a model is trained: a framework leaves out the layers for further tokens."""
_AT_LEAST_ONE = ("num_layers", "hidden_size", "heads", "num_query_groups")
_NONE_IF_ABSENT = ("num_experts", "mtp_layers", "linear_num_key_heads", "linear_num_value_heads")

_NOT_BY_NAME = ("vision", "mtp_layers", "rope_scaling", "rope_type")
"""What a public model's name doesn't tell."""
_NO_GROUPS = frozenset(("llama", "gpt2", "gpt_neox", "gptj", "opt", "bloom", "mpt", "phi", "codegen"))
"""Model types in which an absent num_key_value_heads means one KV head per query head."""
_MAMBA_LAYERS = {"mamba": "M", "mamba2": "M", "attention": "*", "full_attention": "*", "hybrid": "M"}


class _Config:
    """A config's fields with their locations: the language model's own first, then the top level's."""

    def __init__(self, data: Mapping[str, Any], places: Mapping[str, Location], prefix: str) -> None:
        self.data, self.places, self.prefix = data, places, prefix

    def find(self, *names: str) -> tuple[Any, str]:
        """(value, path) of the first field that is there and not null; (None, "")."""
        for prefix in dict.fromkeys((self.prefix, "")):
            for name in names:
                path = f"{prefix}.{name}" if prefix else name
                value = value_at(self.data, path)
                if value is not None:
                    return value, path
        return None, ""

    def get(self, *names: str) -> Any:
        return self.find(*names)[0]

    def fact(self, value: Any, path: str = "") -> Fact:
        return Fact(value, "model", self.places.get(path), path or None)


def read_model(path: str) -> dict[str, Fact]:
    """The facts (origin `model`) in a model's config.json, in the folder that holds one, or of a model by its name.

    `attention_bias` in a config.json is a bias of the projections: the fact of that name, a bias on the attention
    scores, comes only from ALiBi. A sliding window of w tokens is megatron's (w - 1, 0).

    Raises:
        HcpError: no such file, not a JSON object, not a language model's config, or a size that isn't a whole number.
    """
    from megatron_hcp.launch.model_config import parsed_config

    name, data, places = parsed_config(path)
    prefix = next((key for key in LANGUAGE_SECTIONS if isinstance(value_at(data, key), dict)), "")
    config = _Config(data, places or {}, prefix)
    if config.get(*_SIZES["heads"]) is None or config.get(*_SIZES["hidden_size"]) is None:
        found = f"{name} has no num_attention_heads and hidden_size"
        raise HcpError(found, wanted="a Hugging Face config.json of a language model", do=_DO)
    facts = {"model_name": config.fact(*config.find("model_type", "_name_or_path"))}
    for fact, fields in _SIZES.items():
        value, at = config.find(*fields)
        size = _whole(value, at, name)
        if fact in _AT_LEAST_ONE and value is not None:
            _check_possible(config, value, at, name)
        if size or (value is None and fact in _NONE_IF_ABSENT) or (size == 0 and fact in _NONE_IF_ABSENT):
            facts[fact] = config.fact(size or None, at)
    model_type = str(config.get("model_type") or "")
    if "num_query_groups" not in facts:
        if config.get("multi_query"):
            facts["num_query_groups"] = config.fact(1, config.find("multi_query")[1])
        elif model_type in _NO_GROUPS:
            facts["num_query_groups"] = config.fact(None)
    groups = facts.get("num_query_groups")
    if groups is not None and "heads" in facts:
        # Megatron-LM's command line has a separate flag for grouped queries.
        grouped = groups.value not in (None, facts["heads"].value)
        facts["group_query_attention"] = groups._replace(value=grouped)
    facts |= _mlp(config, name, facts)
    _check_experts(facts, name)
    facts |= _attention(config, name)
    facts |= _hybrid(config)
    vision = any(value_at(data, key) is not None for key in ("vision_config", "visual", "vision_tower", "vit_config"))
    facts["vision"] = config.fact(vision or value_at(data, "thinker_config.vision_config") is not None)
    return facts if places is not None else {fact: value for fact, value in facts.items() if fact not in _NOT_BY_NAME}


def _mlp(config: _Config, name: str, sizes: Mapping[str, Fact]) -> dict[str, Fact]:
    """The widths of the MLP or of the experts, and which layers have experts."""
    experts = sizes.get("num_experts")
    has_experts = experts is not None and bool(experts.value)
    facts = {
        "gated_linear_unit": config.fact(
            is_gated({name: config.get(name) for name in ("hidden_act", "mlp_hidden_act")})
        )
    }
    for fact, size in {**_WORK, **(_EXPERTS if has_experts else {})}.items():
        value, at = config.find(*NAMES[size])
        if value := _whole(value, at, name):
            facts[fact] = config.fact(value, at)
    layers = sizes["num_layers"].value if "num_layers" in sizes else 0
    if not has_experts:
        return facts
    shared, at = config.find(*NAMES["shared_experts"])
    if "moe_shared_expert_intermediate_size" not in facts and "moe_ffn_hidden_size" in facts:
        width = (_whole(shared, at, name) or 0) * facts["moe_ffn_hidden_size"].value
        facts["moe_shared_expert_intermediate_size"] = config.fact(width or None, at)
    first, at = config.find(*NAMES["dense_layers"])
    dense = min(_whole(first, at, name) or 0, layers)
    every, every_at = config.find("moe_layer_freq")
    pattern = (0,) * dense + (1,) * (layers - dense) if dense else _whole(every, every_at, name) or 1
    facts["moe_layer_freq"] = config.fact(pattern, at if dense else every_at)
    return facts


def _attention(config: _Config, name: str) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    rank, at = config.find("kv_lora_rank")
    facts["mla"] = config.fact(rank is not None, at)
    scaling, place = config.find("rope_scaling", "rope_parameters")
    rope_type = (scaling.get("rope_type") or scaling.get("type")) if isinstance(scaling, dict) else None
    scales = isinstance(rope_type, str) and rope_type not in ("default", "mrope")
    facts["rope_scaling"] = config.fact(rope_type if scales else None, place)
    if rank is not None:
        for fact, field in _MLA.items():
            value, place = config.find(field)
            if value is not None:
                facts[fact] = config.fact(_whole(value, place, name), place)
        facts["rope_type"] = config.fact("yarn" if rope_type == "yarn" else "rope", config.find("rope_scaling")[1])
    facts |= _window(config, name)
    sinks, place = config.find("add_swa_attention_sink_bias", "add_full_attention_sink_bias")
    gpt_oss = str(config.get("model_type")).startswith("gpt_oss")
    facts["softmax_type"] = config.fact("learnable" if sinks or gpt_oss else "vanilla", place)
    alibi, place = config.find("alibi", "attn_config.alibi")
    facts["attention_bias"] = config.fact(bool(alibi) or config.get("model_type") == "bloom", place)
    variant, place = config.find(*_VARIANTS)
    facts["attention_variant"] = config.fact(_VARIANTS.get(place.rpartition(".")[2]) if variant else None, place)
    return facts


def _window(config: _Config, name: str) -> dict[str, Fact]:
    """The sliding window and, if layers are listed, which of them use it (1) and which use full attention (0)."""
    none = {"window_size": config.fact(None), "window_attn_skip_freq": config.fact(None)}
    window, at = config.find("sliding_window", "sliding_window_size")
    if config.get(*_COMPRESSED):
        return none  # DeepSeek-V4's window is its own attention's, csa_window_size
    if window is None or config.get("use_sliding_window") is False or isinstance(window, bool | list):
        return none
    layers, layers_at = config.find("layer_types")
    pattern = None
    if isinstance(layers, list):
        pattern = [int(layer == "sliding_attention") for layer in layers]
        if not any(pattern):
            return none
        pattern = None if all(pattern) else pattern
    every, every_at = config.find("sliding_window_pattern", "_sliding_window_pattern")
    freq: Any = pattern if pattern is not None else every
    size = _whole(window, at, name)
    if not size:
        return none
    return {
        "window_size": config.fact((size - 1, 0), at),
        "window_attn_skip_freq": config.fact(freq, layers_at if pattern is not None else every_at),
    }


def _hybrid(config: _Config) -> dict[str, Fact]:
    """The layer pattern of a hybrid model: M Mamba, * attention, as Megatron writes it; null = no Mamba layer."""
    pattern, at = config.find("hybrid_override_pattern", "hybrid_layer_pattern")
    if isinstance(pattern, str):
        return {"hybrid_pattern": config.fact(pattern, at)}
    layers, at = config.find("layers_block_type", "layer_types", "layers_types")
    if isinstance(layers, list) and any(str(layer).startswith("mamba") for layer in layers):
        return {"hybrid_pattern": config.fact("".join(_MAMBA_LAYERS.get(str(layer), "-") for layer in layers), at)}
    heads, at = config.find("mamba_n_heads", "mamba_num_heads")
    if heads is None:
        return {"hybrid_pattern": config.fact(None)}
    count = config.get("num_hidden_layers")  # Falcon-H1: Mamba and attention in parallel in every layer
    return {"hybrid_pattern": config.fact("M" * count if isinstance(count, int) and count < 10_000 else "M", at)}


def _whole(value: Any, path: str, name: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, list) and value and all(item == value[0] for item in value):
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 10**9:
        raise HcpError(
            f"{name}: {path} is {str(value)[:40]!r}", wanted="a whole number", do="give the model's config.json"
        )
    return value


def _check_possible(config: _Config, value: Any, path: str, name: str) -> None:
    """Checks that a model has at least one layer, head and channel, and that a list has one item per layer.

    Raises:
        HcpError: it is 0, or the list has another length.
    """
    layers = config.get(*_SIZES["num_layers"])
    if isinstance(value, list) and len(value) != layers:
        raise HcpError(f"{name}: {path} is a list of {len(value)}", wanted="one whole number", do=_DO)
    if value == 0 or (isinstance(value, list) and value[0] == 0):
        raise HcpError(f"{name}: {path} is 0", wanted="a whole number of at least 1", do=_DO)


def _check_experts(facts: Mapping[str, Fact], name: str) -> None:
    """Checks that a token isn't routed to more experts than exist; a model with a single expert is dense.

    Raises:
        HcpError: it would.
    """
    experts, topk = facts.get("num_experts"), facts.get("moe_router_topk")
    if experts is not None and topk is not None and 1 < experts.value < topk.value:
        found = f"{name}: {topk.key} is {topk.value}, of {experts.value} experts"
        raise HcpError(found, wanted=f"at most {experts.value}", do=_DO)
