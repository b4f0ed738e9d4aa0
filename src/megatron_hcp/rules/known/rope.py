"""Known faults of what scales RoPE, and so decides what long positions mean."""

from __future__ import annotations

from megatron_hcp.rules.known.row import Known, register_rows
from megatron_hcp.rules.rule import Example
from megatron_hcp.rules.upstream import (
    BRIDGE_GEMMA4_PROVIDER,
    BRIDGE_LLAMA,
    BRIDGE_MODEL_BRIDGE,
    BRIDGE_QWEN3,
    VERL_ENGINE,
    VERL_MODEL_INITIALIZER,
)

_MODELS = "model._target_=megatron.bridge.models."
_LLAMA = Example("bridge", f"{_MODELS}llama.llama_provider.Llama2ModelProvider7B", "rope_scaling=linear bridge=0.5.1")
_QWEN3 = Example("bridge", f"{_MODELS}qwen.qwen_provider.Qwen3ModelProvider8B", "rope_scaling=yarn bridge=0.2.2")
_VERL = (
    "actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.megatron.tensor_model_parallel_size=1 "
    "actor_rollout_ref.model.path="
)
_OVERRIDE = "+actor_rollout_ref.model.override_config.rope_scaling.type=yarn"
_UNSCALED = "positions aren't scaled as in the source model: logits are silently wrong, most at long context"

ROWS: tuple[Known, ...] = (
    Known(
        "KNOWN060",
        "bridge",
        "<0.6",
        when="rope_scaling = linear and model_name names llama",
        title="Llama's linear RoPE scaling is converted",
        why="The bridge reads only llama3's scaling and leaves seq_len_interpolation_factor empty.",
        symptom=f"the bridge drops the config's linear RoPE scaling: {_UNSCALED}",
        issue="NVIDIA-NeMo/Megatron-Bridge#5097",
        source=(
            BRIDGE_LLAMA.says("LlamaBridge.provider_bridge", absent="seq_len_interpolation_factor", versions="<0.6"),
        ),
        launch=_LLAMA,
        instead="model.seq_len_interpolation_factor set to the config's factor",
        outcome="error silent never",
    ),
    Known(
        "KNOWN061",
        "bridge",
        "<0.3.1",
        when="rope_scaling = yarn and model_name names qwen2 qwen25 qwen3",
        title="Qwen's YaRN is converted",
        why="These bridges read rope_theta alone; 0.3.1 added YaRN to what all bridges convert.",
        symptom=f"the bridge drops the config's YaRN: {_UNSCALED}",
        issue="NVIDIA-NeMo/Megatron-Bridge, qwen3_bridge.py",
        source=(
            BRIDGE_QWEN3.says("Qwen3Bridge.provider_bridge", absent="yarn", versions=">=0.2,<0.3.1", where="checkout"),
        ),
        launch=_QWEN3,
        outcome="error silent never",
    ),
    Known(
        "KNOWN062",
        "bridge",
        ">=0.2",
        when="rope_scaling in linear dynamic longrope and model_name names qwen mistral",
        title="The config's RoPE scaling is of a type that the bridge converts",
        why="What all bridges share converts YaRN and drops every other type without a word.",
        symptom=f"the bridge drops a RoPE scaling other than YaRN: {_UNSCALED}",
        issue="NVIDIA-NeMo/Megatron-Bridge, model_bridge.py",
        source=(
            BRIDGE_MODEL_BRIDGE.says(
                "MegatronModelBridge.hf_config_to_provider_kwargs",
                absent="seq_len_interpolation_factor",
                versions=">=0.3.1",
            ),
        ),
        launch=_QWEN3._replace(assume="rope_scaling=dynamic bridge=0.6.2"),
        good=_QWEN3._replace(assume="rope_scaling=null bridge=0.6.2"),
        instead="YaRN, or the model's own context length",
        outcome="error silent never",
    ),
    Known(
        "KNOWN063",
        "bridge",
        ">=0.2",
        when="rope_scaling = yarn and model_name names qwen2vl qwen25vl qwen3vl",
        title="A Qwen model with vision has no YaRN",
        why="The bridges of these models set position_embedding_type to mrope, whose code knows no YaRN.",
        symptom=f"the bridge drops the config's YaRN for a model with vision: {_UNSCALED}",
        issue="NVIDIA-NeMo/Megatron-Bridge, modelling_qwen3_vl/rope.py",
        source=(BRIDGE_MODEL_BRIDGE.says("MegatronModelBridge", "YARN_ROPE_SCALING_MAPPING", ">=0.3.1"),),
        launch=Example(
            "bridge", f"{_MODELS}qwen_vl.qwen3_vl_provider.Qwen3VLModelProvider", "rope_scaling=yarn bridge=0.6.2"
        ),
        good=Example(
            "bridge", f"{_MODELS}qwen_vl.qwen3_vl_provider.Qwen3VLModelProvider", "rope_scaling=null bridge=0.6.2"
        ),
        instead="the model's own context length",
        outcome="error silent never",
    ),
    Known(
        "KNOWN064",
        "bridge",
        ">=0.5,<0.6",
        when="model_name names gemma4",
        title="Gemma 4's layers with full attention rotate the right channels",
        why="A quarter of the head's channels is rotated as if the head were that narrow; Hugging Face pairs channels "
        "across the whole head and leaves three quarters of the pairs alone.",
        symptom="the layers with full attention rotate other channels than Hugging Face's model: attention is silently "
        "wrong",
        issue="NVIDIA-NeMo/Megatron-Bridge#4916",
        source=(
            BRIDGE_GEMMA4_PROVIDER.says(
                "Gemma4RotaryEmbedding.__init__", "rotary_percent=global_rotary_percent", ">=0.5,<0.6"
            ),
        ),
        launch=Example("bridge", f"{_MODELS}gemma.gemma4_provider.Gemma4ModelProvider", "bridge=0.5.1"),
        outcome="error silent never",
    ),
    Known(
        "KNOWN065",
        "verl",
        ">=0.5",
        when="rope_scaling_override in yarn dynamic longrope llama3 and model_name names qwen llama",
        title="An override of RoPE scaling reaches Megatron's model",
        why="Megatron-Bridge reads the config of the model's folder again, without verl's overrides. The legacy "
        "mbridge ignores Qwen's scaling; it and verl's own models interpolate Llama's positions linearly.",
        symptom="no builder of Megatron's model applies this override: the trainer's positions silently aren't scaled "
        "by it",
        issue="verl-project/verl#6654, docs/advance/rope.rst",
        source=(
            VERL_ENGINE.says("MegatronEngine._build_tf_config", "AutoBridge.from_hf_pretrained(", ">=0.7"),
            VERL_MODEL_INITIALIZER.says(
                "BaseModelInitializer.get_rope_scaling_args",
                'rope_scaling_args["seq_len_interpolation_factor"]',
                ">=0.5",
            ),
        ),
        launch=Example("verl", f"{_VERL}Qwen/Qwen2.5-7B-Instruct {_OVERRIDE}", "verl=0.8"),
        good=Example("verl", f"{_VERL}Qwen/Qwen2.5-7B-Instruct", "verl=0.9"),
        instead="rope_scaling in the config.json of the model's folder, with vanilla_mbridge False",
        outcome="error silent never",
    ),
    Known(
        "KNOWN066",
        "verl",
        "<0.9",
        when="model_name names llama31 llama32 llama33 distillllama and vanilla_mbridge != false",
        title="Llama 3.1's RoPE scaling is its own",
        why="The legacy mbridge, the default before 0.9, and verl's own models take only the factor of rope_scaling "
        "and divide every position by it. llama3's scaling leaves short wavelengths alone.",
        symptom="every position is divided by the factor of llama3's RoPE scaling: the trainer's logits are silently "
        "wrong at any length",
        issue="verl-project/verl#155",
        source=(
            VERL_MODEL_INITIALIZER.says(
                "BaseModelInitializer.get_rope_scaling_args",
                'rope_scaling_args["seq_len_interpolation_factor"]',
                ">=0.5",
            ),
        ),
        launch=Example("verl", f"{_VERL}meta-llama/Llama-3.1-8B-Instruct", "verl=0.8"),
        instead="Megatron-Bridge (use_mbridge True, vanilla_mbridge False)",
        outcome="error silent never",
    ),
    Known(
        "KNOWN067",
        "verl",
        "<0.9",
        when="rope_scaling = yarn and model_name names qwen and vanilla_mbridge != false",
        title="Qwen's YaRN reaches Megatron's model",
        why="The legacy mbridge, the default before 0.9, reads rope_theta alone; verl's own models "
        "interpolate linearly.",
        symptom="the default builder of the model ignores the config's YaRN: the trainer's logits are silently wrong "
        "at long context",
        issue="verl-project/verl#6654",
        source=(VERL_ENGINE.says("MegatronEngine._build_tf_config", "AutoBridge.from_config(", ">=0.7"),),
        launch=Example("verl", f"{_VERL}Qwen/Qwen3-8B", "verl=0.8 rope_scaling=yarn"),
        instead="Megatron-Bridge (use_mbridge True, vanilla_mbridge False)",
        outcome="error silent never",
    ),
)

register_rows(ROWS, __name__)
