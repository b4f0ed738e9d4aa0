"""Where a model's config.json comes from: a file, the local cache, or the table of public models."""

from __future__ import annotations

import os
from typing import Any

from megatron_hcp.ground.asked import is_folder, is_there
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.place import Location
from megatron_hcp.launch.source import text_of_target

_WANTED = "a model's config.json"
_DO = "give the one next to the model's weights"
_NAMED = {
    "num_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "num_attention_heads": "num_attention_heads",
    "num_query_groups": "num_key_value_heads",
    "kv_channels": "head_dim",
    "num_moe_experts": "num_experts",
    "ffn_hidden_size": "intermediate_size",
    "vocab_size": "vocab_size",
    "moe_ffn_hidden_size": "moe_intermediate_size",
    "moe_router_topk": "num_experts_per_tok",
    "moe_shared_expert_intermediate_size": "shared_expert_intermediate_size",
    "qk_head_dim": "qk_nope_head_dim",
    "qk_pos_emb_head_dim": "qk_rope_head_dim",
    "v_head_dim": "v_head_dim",
    "q_lora_rank": "q_lora_rank",
    "kv_lora_rank": "kv_lora_rank",
    "linear_num_key_heads": "linear_num_key_heads",
    "linear_num_value_heads": "linear_num_value_heads",
    "hybrid_layer_pattern": "hybrid_override_pattern",
    "mamba_num_heads": "mamba_num_heads",
    "mamba_num_groups": "n_groups",
    "mamba_head_dim": "mamba_head_dim",
    "moe_latent_size": "moe_latent_size",
}
"""Fields of megatron-core's configuration, and what a config.json calls them."""
_NEEDED = ("num_layers", "hidden_size", "num_attention_heads", "gated_linear_unit", "vocab_size")
_ATTENTION = ("window_size", "softmax_type", "experimental_attention_variant")
"""Fields that tell that attention is plain, where the table has nothing of the config.json beside the sizes."""


def model_values(path: str) -> tuple[str, dict[str, Any]]:
    """(file name, raw config) for whatever `read_model` accepts.

    Raises:
        HcpError: no such file, or no JSON object.
    """
    return parsed_config(path)[:2]


def parsed_config(path: str) -> tuple[str, dict[str, Any], dict[str, Location] | None]:
    """(name, config, places of its fields) of a config.json, of that in a folder, or of a model by its name.

    A model's name is looked up in the local cache, then in the table of public models: there are no places then (None).

    Raises:
        HcpError: no such file or model, or no JSON object.
    """
    if is_folder(path):
        path = os.path.join(path, "config.json")
    elif not is_there(path):
        from megatron_hcp.launch.hf_cache import cached_config, is_cached, is_model_name

        if is_model_name(path):
            config = None if is_cached(path) else public_config(path)
            if config is not None:
                return path, config, None
            path = cached_config(path)
    name, text = text_of_target(path, lambda: b"", _WANTED)
    return name, *_parsed(text, name)


def public_config(model: str) -> dict[str, Any] | None:
    """What a public model's config.json has of the sizes and the attention; None if the table has no such model.

    Raises:
        HcpError: the table doesn't tell all of that.
    """
    from megatron_hcp.launch.facts.known_models import fields_of

    fields = dict(fields_of(model))
    if not fields:
        return None
    beside = {**fields.get("csa", {}), **fields.get("config", {})}
    pattern = fields.get("hybrid_layer_pattern") or beside.get("hybrid_override_pattern")
    if pattern:
        fields.setdefault("num_layers", len(pattern))
    layers = fields.get("moe_layer_freq", 1)
    dense = layers.index(1) if isinstance(layers, list) else 0
    lacking = [_NAMED.get(name, name) for name in _NEEDED if name not in fields]
    if "config" not in fields:
        lacking += [name for name in _ATTENTION if name not in fields]
        if fields.get("experimental_attention_variant") and "linear_num_key_heads" not in fields:
            lacking.append("linear_num_key_heads")
        if isinstance(layers, list) and 0 in layers[dense:]:
            lacking.append("first_k_dense_replace")
    if lacking:
        wanted = f"its config.json, as the table of public models has no {', '.join(lacking)} of it"
        do = f"run `hf download {model} config.json`, or give the file"
        raise HcpError(f"found the name {model} alone", wanted=wanted, do=do)
    config = {_NAMED[name]: value for name, value in fields.items() if name in _NAMED and value is not None}
    config["_name_or_path"] = model
    config["hidden_act"] = "silu" if fields["gated_linear_unit"] else "relu2"
    return {**config, **({"first_k_dense_replace": dense} if dense else {}), **beside}


def public_sizes(model: str) -> dict[str, Any]:
    """The same, or where the table tells less the sizes that it has; {} if it has no such model."""
    from megatron_hcp.launch.facts.known_models import fields_of

    try:
        return public_config(model) or {}
    except HcpError:
        fields = fields_of(model)
        sizes = {_NAMED[name]: value for name, value in fields.items() if name in _NAMED and value is not None}
        return {**sizes, **fields.get("config", {})}


def _parsed(text: str, name: str) -> tuple[dict[str, Any], dict[str, Location]]:
    """The config, and its fields' locations: JSON is nearly YAML, whose reader knows them; none if it can't read it."""
    from megatron_hcp.launch.forms.yaml.settings import load_yaml

    try:
        doc = load_yaml(text, name)
        return doc.data, {setting.key: setting.location for setting in doc.settings if setting.location}
    except HcpError:
        import json

        try:
            data = json.loads(text)
        except RecursionError:
            raise HcpError(f"{name} is nested too deeply", wanted=_WANTED, do=_DO) from None
        except json.JSONDecodeError as error:
            at = (name, error.lineno, error.colno)
            raise HcpError(f"not JSON ({error.msg})", wanted=_WANTED, do=_DO, at=at) from None
        except ValueError:
            raise HcpError(f"{name}: not JSON (a number is too long)", wanted=_WANTED, do=_DO) from None
        if not isinstance(data, dict):
            found = "list" if isinstance(data, list) else "text" if isinstance(data, str) else "single value"
            raise HcpError(f"{name} is a JSON {found}", wanted=f"{_WANTED}, an object with fields", do=_DO) from None
        return data, {}
