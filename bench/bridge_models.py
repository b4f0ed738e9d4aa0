"""What Megatron-Bridge's model bridges and providers set of a model's config, read from their sources.

A recipe names a Hugging Face model; its bridge makes the config. Which bridge that is stands in the model's
config.json, which is not in the checkout: `BRIDGES` says it. Values that come out of config.json are `UNKNOWN`.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from bridge_recipes import UNKNOWN, Sources

BRIDGES = (
    (r"LGAI-EXAONE/EXAONE-4\.5", "Exaone45Bridge"),
    (r"LGAI-EXAONE/EXAONE-4\.0", "Exaone4Bridge"),
    (r"LGAI-EXAONE/K-EXAONE", "ExaoneMoeBridge"),
    (r"MiniMaxAI/MiniMax-M3", "MiniMaxM3Bridge"),
    (r"Qwen/Qwen2-Audio", "Qwen2AudioBridge"),
    (r"Qwen/Qwen2\.5-VL", "Qwen25VLBridge"),
    (r"Qwen/Qwen2", "Qwen2Bridge"),
    (r"Qwen/Qwen3-Next", "Qwen3NextBridge"),
    (r"Qwen/Qwen3-VL-\d+B-A", "Qwen3VLMoEBridge"),
    (r"Qwen/Qwen3-VL", "Qwen3VLBridge"),
    (r"Qwen/Qwen3-Omni", "Qwen3OmniBridge"),
    (r"Qwen/Qwen3-[\d.]+B-A", "Qwen3MoEBridge"),
    (r"Qwen/Qwen3-", "Qwen3Bridge"),
    (r"Qwen/Qwen3\.5-[\d.]+B-A", "Qwen35VLMoEBridge"),
    (r"Qwen/Qwen3\.5", "Qwen35VLBridge"),
    (r"deepseek-ai/DeepSeek-V2", "DeepSeekV2Bridge"),
    (r"deepseek-ai/DeepSeek-V3|moonshotai/Moonlight", "DeepSeekV3Bridge"),
    (r"deepseek-ai/DeepSeek-V4", "DeepSeekV4Bridge"),
    (r"google/gemma-2", "Gemma2Bridge"),
    (r"google/gemma-3-1b", "Gemma3ModelBridge"),
    (r"google/gemma-3", "Gemma3VLBridge"),
    (r"google/gemma-4", "Gemma4VLBridge"),
    (r"meta-llama/", "LlamaBridge"),
    (r"mistralai/Ministral-3", "Ministral3Bridge"),
    (r"moonshotai/Kimi-K2\.5", "KimiK25VLBridge"),
    (r"moonshotai/Kimi-K2", "KimiK2Bridge"),
    (r"nvidia/Nemotron-3-Nano-Omni", "NemotronOmniBridge"),
    (r"nvidia/.*-VL", "NemotronVLBridge"),
    (r"nvidia/NVIDIA-Nemotron-3", "NemotronHBridge"),
    (r"openai/gpt-oss", "GPTOSSBridge"),
    (r"stepfun-ai/Step-3\.5", "Step35Bridge"),
    (r"stepfun-ai/Step-3\.7", "Step37Bridge"),
    (r"zai-org/GLM-4\.5V", "GLM45VBridge"),
    (r"zai-org/GLM-4\.5", "GLM45Bridge"),
    (r"zai-org/GLM-5", "GLM5Bridge"),
)
"""Hugging Face model (a regular expression, matched at its start; the first that fits) -> class of its bridge."""

_CONFIGS = ("provider", "model_config", "config")
_ATTENTION = {"MLAModelProvider": {"multi_latent_attention": True}}
"""Provider -> what the megatron-core class below it sets, which no file of Bridge says."""


def bridge_of(model: str) -> str | None:
    """The class of the bridge that makes the model's config; None where nobody wrote down which."""
    return next((name for pattern, name in BRIDGES if re.match(pattern, model)), None)


def set_by_model(sources: Sources, name: str) -> dict[str, Any]:
    """The fields that a bridge or a provider class gives another value than its base, by name; `UNKNOWN` values too."""
    fields: dict[str, Any] = {}
    item = sources.classes.get(name)
    if item is None or name == "MegatronModelBridge":
        return fields
    if name.endswith("Provider"):
        return _provider_fields(sources, name)
    for base in item.bases:
        if isinstance(base, ast.Name):
            fields |= set_by_model(sources, base.id)
    for node in (item, *_functions_beside(sources, item)):
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name | ast.Attribute) and _last(inner).endswith("Provider"):
                fields |= _provider_fields(sources, _last(inner))
    for node in (*_functions_beside(sources, item), item):
        fields |= _assigned(node)
    return fields


def _functions_beside(sources: Sources, item: ast.ClassDef) -> list[ast.FunctionDef]:
    """The functions of the class's module: bridges share some of their work through them."""
    module = next(name for name, classes in sources.homes.items() if item in classes)
    return list(sources.functions[module].values())


def _provider_fields(sources: Sources, name: str) -> dict[str, Any]:
    fields: dict[str, Any] = dict(_ATTENTION.get(name, {}))
    item = sources.classes.get(name)
    for base in item.bases if item else ():
        if isinstance(base, ast.Name):
            fields |= _provider_fields(sources, base.id)
    for line in item.body if item else ():
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.value is not None:
            fields[line.target.id] = _literal(line.value)
    return fields


def _assigned(node: ast.AST) -> dict[str, Any]:
    """`provider.x = value` and `SomethingProvider(x=value)`, also inside functions."""
    fields: dict[str, Any] = {}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assign):
            for target in inner.targets:
                if isinstance(target, ast.Attribute) and _last(target.value) in _CONFIGS:
                    fields[target.attr] = _literal(inner.value)
        elif isinstance(inner, ast.Call) and _last(inner.func).endswith(("Provider", "PROVIDER_CLASS")):
            fields |= {word.arg: _literal(word.value) for word in inner.keywords if word.arg}
    return fields


def _last(item: ast.AST) -> str:
    return item.id if isinstance(item, ast.Name) else item.attr if isinstance(item, ast.Attribute) else ""


def _literal(item: ast.expr) -> Any:
    """A literal, an enum's member by its name, or the default in `field(default=…)`; else `UNKNOWN`."""
    if isinstance(item, ast.Call) and _last(item.func) == "field":
        given = next((word.value for word in item.keywords if word.arg == "default"), None)
        return UNKNOWN if given is None else _literal(given)
    if isinstance(item, ast.Attribute) and _last(item.value) == "AttnBackend":
        return item.attr
    try:
        return ast.literal_eval(item)
    except ValueError:
        return UNKNOWN
