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
from megatron_hcp.ground.files import read_text
from megatron_hcp.launch.facts.known_models import fields_of, names_of_models, without_stage
from megatron_hcp.launch.hf_cache import cache_folder, cached_config, is_cached, is_model_name
from megatron_hcp.launch.model_config import public_sizes

_FAMILIES = (
    (r"Qwen/Qwen2(\.5)?(-Math)?-\d", "Qwen2ForCausalLM", "qwen2", ""),
    (r"(google|LLM-Research)/gemma-2-", "Gemma2ForCausalLM", "gemma2", ""),
    (r"(google|LLM-Research)/gemma-3-1b", "Gemma3ForCausalLM", "gemma3_text", ""),
    (r"google/gemma-4-E", "Gemma4ForConditionalGeneration", "gemma4", "text_config"),
    (r"google/gemma-3-", "Gemma3ForConditionalGeneration", "gemma3", "text_config"),
    (r"Qwen/Qwen3-\d+(\.\d+)?B(?!-A)", "Qwen3ForCausalLM", "qwen3", ""),
    (r"Qwen/Qwen3-\d+B-A\d", "Qwen3MoeForCausalLM", "qwen3_moe", ""),
    (r"Qwen/Qwen3-Next-", "Qwen3NextForCausalLM", "qwen3_next", ""),
    (r"Qwen/Qwen3\.5-\d+(\.\d+)?B(?!-A)", "Qwen3_5ForConditionalGeneration", "qwen3_5", "text_config"),
    (r"Qwen/Qwen3\.5-\d+B-A\d", "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", "text_config"),
    (r"Qwen/Qwen2\.5-VL-\d", "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", "text_config"),
    (r"Qwen/Qwen3-Omni-", "Qwen3OmniMoeForConditionalGeneration", "qwen3_omni_moe", "thinker_config.text_config"),
    (r"Qwen/Qwen2-Audio-", "Qwen2AudioForConditionalGeneration", "qwen2_audio", "text_config"),
    (r"(meta-llama|LLM-Research)/(Meta-)?Llama-[23]", "LlamaForCausalLM", "llama", ""),
    (r"moonshotai/Moonlight-|deepseek-ai/DeepSeek-(V3(-Base)?|R1)\Z", "DeepseekV3ForCausalLM", "deepseek_v3", ""),
    (r"(zai-org|ZhipuAI)/GLM-4\.5V", "Glm4vMoeForConditionalGeneration", "glm4v_moe", "text_config"),
    (r"(zai-org|ZhipuAI)/GLM-4\.5", "Glm4MoeForCausalLM", "glm4_moe", ""),
    (r"mistralai/Ministral-3-", "Mistral3ForConditionalGeneration", "mistral3", "text_config"),
    (r"nvidia/NVIDIA-Nemotron-Nano-12B-v2-VL", "NemotronH_Nano_VL_V2", "NemotronH_Nano_VL_V2", "llm_config"),
    (r"nvidia/Nemotron-3-Nano-Omni-", *["NemotronH_Nano_Omni_Reasoning_V3"] * 2, "llm_config"),
    (r"LGAI-EXAONE/K-EXAONE-", "ExaoneMoEForCausalLM", "exaone_moe", ""),
)
"""Models whose sizes alone make a config.json, and where in it they stand: the rest are its class's defaults."""
_OF_DEFAULTS = (
    "Qwen/Qwen2-Audio-7B-Instruct",
    "zai-org/GLM-4.5V",
    "google/gemma-4-E4B-it",
    *(f"Qwen/Qwen3.5-{size}" for size in ("2B", "9B-Base", "35B-A3B-Base")),
)
"""Models of these that recipes name, and of which hcp's table has no sizes."""
_BESIDE_SIZES: dict[str, dict[str, Any]] = {
    "mistral3": {"model_type": "ministral3"},
    "glm4v_moe": {"head_dim": 128, "use_qk_norm": False},
    "NemotronH_Nano_VL_V2": {"vocab_size": 131072},
}
"""What stands beside the sizes, where it isn't the class's default."""
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
    """A config.json of a public model's sizes, as far as they are known; None for a model of another family."""
    family = next((family for family in _FAMILIES if re.match(family[0], name)), None)
    config = (public_sizes(name) or ({} if name in _OF_DEFAULTS else None)) if family else None
    if family is None or config is None:
        return None
    _, architecture, kind, place = family
    made: dict[str, Any] = {"architectures": [architecture], "model_type": kind, "torch_dtype": "bfloat16"}
    config |= _BESIDE_SIZES.get(kind, {})
    if place:
        for section in reversed(place.split(".")):
            config = {section: config}
    else:
        is_small = config.get("hidden_size", _LARGEST_TIED + 1) <= _LARGEST_TIED
        made["tie_word_embeddings"] = "num_experts" not in config and is_small
        config |= _routed(config) if kind in _NAME_EXPERTS_ROUTED else {}
    return {**made, **config}


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
    for name in {*names_of_models(), *_OF_DEFAULTS, *_NAME.findall(" ".join(words))}:
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
    """A config.json made of a model's sizes, or that of another stage of it in the cache; "" if there is none.

    A name that isn't known, such as a mirror's, may be a public model's under another owner.
    """
    name = name if fields_of(name) else public_name(name) or name
    if made := made_config(name):
        return json.dumps(made)
    owner, _, stage = without_stage(name).partition("/")
    with suppress(HcpError):
        for other in sorted(cached, key=lambda one: not one.startswith(f"{owner}/")):
            if without_stage(other).partition("/")[2] == stage:
                found = json.loads(read_text(cached_config(other), "a model's config"))
                found.pop("quantization_config", None)  # of its stored weights
                return json.dumps(found)
    return ""
