"""Model families, each represented by one member: the config.json fields that matter for attention and CP.

Compared field by field with the published files in these repositories: ai-dynamo/aiconfigurator, model_configs/ (Llama,
Qwen3, gpt-oss, DeepSeek, Qwen3-VL); Megatron-Bridge, tests/unit_tests/models/ (Gemma 3 27B, Qwen3-Next); Megatron-LM,
examples/post_training/modelopt/conf/nvidia/ (Nemotron-H 8B); a printed MistralConfig of Mistral 7B v0.1.
"""

from __future__ import annotations

from typing import Any

_GPT_OSS_LAYERS = ["sliding_attention", "full_attention"] * 12
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama (3.1 8B)": {
        "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    },
    "Qwen dense (Qwen3 32B)": {
        "model_type": "qwen3", "num_hidden_layers": 64, "hidden_size": 5120, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 25600, "vocab_size": 151936,
        "sliding_window": None, "use_sliding_window": False,
    },
    "Qwen MoE (Qwen3 30B-A3B)": {
        "model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "vocab_size": 151936,
        "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "use_sliding_window": False,
    },
    "Mistral with windows (7B v0.1)": {
        "model_type": "mistral", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "sliding_window": 4096,
    },
    "Gemma with mixed windows (Gemma 3 27B)": {
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text", "num_hidden_layers": 62, "hidden_size": 5376, "num_attention_heads": 32,
            "num_key_value_heads": 16, "head_dim": 128, "intermediate_size": 21504, "vocab_size": 262208,
            "sliding_window": 1024,
        },
    },
    "gpt-oss with sinks (20B)": {
        "model_type": "gpt_oss", "num_hidden_layers": 24, "hidden_size": 2880, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880, "vocab_size": 201088,
        "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128, "layer_types": _GPT_OSS_LAYERS,
    },
    "DeepSeek with MLA (V3)": {
        "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
        "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 18432, "vocab_size": 129280,
        "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "first_k_dense_replace": 3,
        "rope_scaling": {"type": "yarn"}, "num_nextn_predict_layers": 1,
    },
    "DeepSeek with DSA (V3.2)": {
        "model_type": "deepseek_v32", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
        "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 18432, "vocab_size": 129280,
        "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "first_k_dense_replace": 3,
        "rope_scaling": {"type": "yarn"}, "num_nextn_predict_layers": 1, "index_topk": 2048, "index_n_heads": 64,
        "index_head_dim": 128,
    },
    "Mamba hybrid (Nemotron-H 8B)": {
        "model_type": "nemotron_h", "num_hidden_layers": 52, "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 21504, "vocab_size": 131072, "mamba_num_heads": 128,
        "mamba_head_dim": 64, "n_groups": 8,
        "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
    },
    "GDN hybrid (Qwen3-Next 80B-A3B)": {
        "model_type": "qwen3_next", "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 16,
        "num_key_value_heads": 2, "head_dim": 256, "intermediate_size": 5120, "vocab_size": 151936,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
    },
    "vision with text_config (Qwen3-VL 8B)": {
        "model_type": "qwen3_vl", "vision_config": {"depth": 27},
        "text_config": {
            "model_type": "qwen3_vl_text", "num_hidden_layers": 36, "hidden_size": 4096, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936,
        },
    },
}  # fmt: skip
