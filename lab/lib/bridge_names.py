"""Which bridge class of Megatron-Bridge makes a Hugging Face model's configuration: its config.json says which, and no
checkout has that."""

from __future__ import annotations

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
    (r"google/gemma-4-E4B", ""),  # its recipes switch to a conversion of the text model alone
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

TEXT_ONLY = frozenset(
    "DeepSeekV2Bridge DeepSeekV3Bridge DeepSeekV4Bridge Exaone4Bridge ExaoneMoeBridge GLM45Bridge GLM5Bridge "
    "GPTOSSBridge Gemma2Bridge Gemma3ModelBridge KimiK2Bridge LlamaBridge NemotronHBridge Qwen2Bridge Qwen3Bridge "
    "Qwen3MoEBridge Qwen3NextBridge Step35Bridge".split()
)
"""The bridges of models that take nothing but text."""
