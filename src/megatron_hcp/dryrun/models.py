"""Which public model stands for a launch's whose folder isn't here, and a config.json made from known sizes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from megatron_hcp.ground.asked import is_folder
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.facts.known_models import fields_of, names_of_models, without_stage
from megatron_hcp.launch.hf_cache import cache_folder, is_cached, is_model_name
from megatron_hcp.launch.model_config import model_values, public_config

_FAMILIES = (
    (re.compile(r"Qwen/Qwen2(\.5)?(-Math)?-\d"), "Qwen2ForCausalLM", "qwen2"),
    (re.compile(r"(google|LLM-Research)/gemma-2-"), "Gemma2ForCausalLM", "gemma2"),
    (re.compile(r"Qwen/Qwen3-\d+(\.\d+)?B(?!-A)"), "Qwen3ForCausalLM", "qwen3"),
    (re.compile(r"Qwen/Qwen3-\d+B-A\d"), "Qwen3MoeForCausalLM", "qwen3_moe"),
    (re.compile(r"(meta-llama|LLM-Research)/(Meta-)?Llama-[23]"), "LlamaForCausalLM", "llama"),
    (
        re.compile(r"moonshotai/Moonlight-|deepseek-ai/DeepSeek-(V3(-Base)?|R1)\Z"),
        "DeepseekV3ForCausalLM",
        "deepseek_v3",
    ),
    (re.compile(r"(zai-org|ZhipuAI)/GLM-4\.5"), "Glm4MoeForCausalLM", "glm4_moe"),
)
"""Models whose sizes alone make a config.json: what else it has are its class's defaults."""
_LARGEST_TIED = 3072
"""Of these families the dense models up to this hidden size tie their embeddings, as their config.json says."""
_NAME_EXPERTS_ROUTED = ("deepseek_v3", "glm4_moe")
_REVISION = "main"
_NAME = re.compile(r"(?<![\w.-])[\w.-]{1,90}/[\w.-]{1,90}")


def public_name(path: str) -> str:
    """The Hub's name of the public model that a path names by its last parts; "" where hcp knows none.

    >>> public_name("~/models/Qwen/Qwen3-8B"), public_name("/models/Qwen3-30B-A3B-Base"), public_name("/models/mine")
    ('Qwen/Qwen3-8B', 'Qwen/Qwen3-30B-A3B-Base', '')
    """
    *_, above, model = ("", *path.rstrip("/").split("/"))
    owners = dict.fromkeys((above, *(name.partition("/")[0] for name in names_of_models())))
    found = [name for name in (f"{owner}/{model}" for owner in owners) if _is_known(name)]
    return found[0] if found else ""


def _is_known(name: str) -> bool:
    return is_model_name(name) and (bool(fields_of(name)) or is_cached(name))


def made_config(name: str) -> dict[str, Any] | None:
    """A config.json of a public model's sizes; None where the sizes alone make none."""
    family = next((family for family in _FAMILIES if family[0].match(name)), None)
    config = public_config(name) if family else None
    if family is None or config is None:
        return None
    is_tied = "num_experts" not in config and config["hidden_size"] <= _LARGEST_TIED
    if family[2] in _NAME_EXPERTS_ROUTED:
        config |= _routed(config)
    return {"architectures": [family[1]], "model_type": family[2], "tie_word_embeddings": is_tied,
            "torch_dtype": "bfloat16", **config}  # fmt: skip


def _routed(config: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes as these models name them; with latent attention each head has keys, and queries may be whole."""
    shared = config.get("shared_expert_intermediate_size", 0)
    found = {"n_routed_experts": config["num_experts"], "n_shared_experts": shared // config["moe_intermediate_size"]}
    if "kv_lora_rank" in config:
        found |= {"q_lora_rank": config.get("q_lora_rank"), "num_key_value_heads": config["num_attention_heads"]}
    return found


def write_cache(folder: str, words: Iterable[str]) -> str:
    """A cache of Hugging Face in a new folder: links to the user's, and what is made for known models that it lacks.

    Args:
        words: what the program gets; a recipe names its model in code, so all models of the table are there too.

    Returns:
        its path. What is no link in it is made, and the run's record notices that it is opened.
    """
    hub, real = os.path.join(folder, "hub"), cache_folder()
    os.mkdir(hub)
    entries = sorted(os.listdir(real)) if is_folder(real) else []
    cached = [entry[8:].replace("--", "/", 1) for entry in entries if entry.startswith("models--")]
    for entry in entries:
        os.symlink(os.path.join(os.path.abspath(real), entry), os.path.join(hub, entry))
    for name in {*names_of_models(), *_NAME.findall(" ".join(words))}:
        model = os.path.join(hub, f"models--{name.replace('/', '--')}")
        if os.path.lexists(model) or not (text := _stands_for(name, cached)):
            continue
        files = {"refs/main": _REVISION, f"snapshots/{_REVISION}/config.json": text}
        for path, text in files.items():
            file = os.path.join(model, path)
            os.makedirs(os.path.dirname(file))
            with open(file, "w", encoding="utf-8") as out:
                out.write(text)
    return hub


def _stands_for(name: str, cached: Iterable[str]) -> str:
    """A config.json made of a model's sizes, or that of another stage of it in the cache; "" if there is none."""
    if made := made_config(name):
        return json.dumps(made)
    stage = without_stage(name)
    with suppress(HcpError):
        for other in cached:
            if without_stage(other) == stage:
                found = model_values(other)[1]
                found.pop("quantization_config", None)  # of its stored weights
                return json.dumps(found)
    return ""
