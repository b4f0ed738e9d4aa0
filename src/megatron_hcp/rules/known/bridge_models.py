"""Known bugs in Megatron-Bridge's models, and in how it feeds them packed batches."""

from __future__ import annotations

from megatron_hcp.rules.known.row import Known, register_rows
from megatron_hcp.rules.rule import Example, Fix
from megatron_hcp.rules.upstream import (
    BRIDGE_CONFIG,
    BRIDGE_GEMMA2,
    BRIDGE_GEMMA3_VL_MODEL,
    BRIDGE_KIMI_VL,
    BRIDGE_MIMO_V2_FLASH_MODEL,
    BRIDGE_TRANSFORMER_CONFIG,
    BRIDGE_VLM_STEP,
)

_MODELS = "model._target_=megatron.bridge.models."
_ONE_STAGE = Fix({"pp": 1}, "no pipeline")
_WITHOUT_CP = Fix({"cp": 1}, "no context parallelism")
_IN_BATCH = "dataset.pack_sequences_in_batch=true train.micro_batch_size=2"
_PIPELINE = "model.pipeline_model_parallel_size=2 model.num_layers=4"
_TOKENS = "model.calculate_per_token_loss=true ddp.average_in_collective=false"

ROWS: tuple[Known, ...] = (
    Known(
        "KNOWN068",
        "bridge",
        "<0.3",
        when="model_name names qwen3vl and pp > 2",
        title="Qwen3-VL's middle pipeline stages get the tokens",
        why="Every stage computes its positions from the tokens, but stages that are neither first nor last get no "
        "batch.",
        symptom="the middle pipeline stages compute positions from tokens that they don't get: the first forward pass "
        "fails",
        issue="NVIDIA-NeMo/Megatron-Bridge#1631",
        outcome="error crash first-forward",
        source=(
            BRIDGE_VLM_STEP.says(
                "get_batch",
                "(not parallel_state.is_pipeline_first_stage()) and (not parallel_state.is_pipeline_last_stage())",
                ">=0.2,<0.3",
                where="checkout",
            ),
        ),
        launch=Example(
            "bridge",
            f"{_MODELS}qwen_vl.qwen3_vl_provider.Qwen3VLModelProvider model.pipeline_model_parallel_size=4 "
            "model.num_layers=8",
            "bridge=0.2.2",
        ),
        instead="a pipeline of at most 2 stages",
        fixes=(_ONE_STAGE,),
    ),
    Known(
        "KNOWN069",
        "bridge",
        ">=0.3,<0.4",
        when="pack_sequences_in_batch and pp > 1",
        title="Pipeline stages exchange the shapes of batches that are packed",
        why="Each packed batch has its own length, but variable_seq_lengths stays off, so that stages expect tensors "
        "of seq_length.",
        symptom="pipeline stages expect seq_length tokens, and each packed batch has another length: the first step "
        "hangs or fails",
        issue="NVIDIA-NeMo/Megatron-Bridge#2825",
        outcome="error hang first-forward",
        source=(BRIDGE_CONFIG.says("ConfigContainer", absent="_pack_sequences_in_batch", versions=">=0.3,<0.4"),),
        launch=Example("bridge", f"{_PIPELINE} {_IN_BATCH}", "bridge=0.3.1"),
        instead="model.variable_seq_lengths, or no pipeline",
        fixes=(_ONE_STAGE,),
    ),
    Known(
        "KNOWN070",
        "bridge",
        ">=0.4,<0.7",
        when="model_name names nemotronsuper nemotronultra nemotronheterogeneous and pack_sequences_in_batch "
        "and pp > 1",
        title="Models with different layers exchange the shapes of packed batches",
        why="The configuration of such models sets variable_seq_lengths for no packed batch.",
        symptom="pipeline stages of this model expect seq_length tokens, and each packed batch has another length: the "
        "first step hangs or fails",
        issue="NVIDIA-NeMo/Megatron-Bridge#5451",
        outcome="error hang first-forward",
        source=(
            BRIDGE_TRANSFORMER_CONFIG.says(
                "HeterogeneousTransformerConfig", absent="variable_seq_lengths", versions=">=0.4,<0.7"
            ),
        ),
        launch=Example(
            "bridge",
            f"{_MODELS}llama_nemotron.llama_nemotron_provider.LlamaNemotronHeterogeneousProvider {_PIPELINE} "
            f"{_IN_BATCH}",
            "bridge=0.5.1",
        ),
        instead="model.variable_seq_lengths, or no pipeline",
        fixes=(_ONE_STAGE,),
    ),
    Known(
        "KNOWN071",
        "bridge",
        ">=0.6,<0.7",
        when="model_name names kimik25 and cp > 1 and pack_sequences_in_batch",
        title="Packed rows of Kimi K2.5 are split for CP sequence by sequence",
        why="The model splits its row as if it were one sequence, while attention follows cu_seqlens.",
        symptom="the packed row is split for CP as one sequence: attention silently crosses boundaries",
        issue="NVIDIA-NeMo/Megatron-Bridge#5463",
        source=(BRIDGE_KIMI_VL.says("_split_on_cp_rank", absent="packed_indices", versions=">=0.6,<0.7"),),
        launch=Example(
            "bridge",
            f"{_MODELS}kimi_vl.kimi_k25_vl_provider.KimiK25VLModelProvider model.context_parallel_size=2 {_TOKENS} "
            f"{_IN_BATCH}",
            "te=2.18 bridge=0.6.2",
        ),
        instead="context_parallel_size 1, or no packing",
        fixes=(_WITHOUT_CP,),
        outcome="error silent never",
    ),
    Known(
        "KNOWN072",
        "bridge",
        "<0.6",
        when="model_name names gemma2 and seq_length > 4096",
        title="Gemma 2's odd layers have the window",
        why="Every even layer, counted from 1, gets the window of 4096 tokens; in Hugging Face's model the odd ones "
        "have it. The fused causal softmax of older releases ignores it altogether.",
        symptom="beyond 4096 tokens the sliding window is on the wrong layers: attention is silently wrong",
        issue="NVIDIA-NeMo/Megatron-Bridge#4308, #4875",
        source=(BRIDGE_GEMMA2.says("Gemma2DotProductAttention.__init__", "self.layer_number % 2 == 0", ">=0.2,<0.6"),),
        launch=Example("bridge", f"{_MODELS}gemma.gemma2_provider.Gemma2ModelProvider model.seq_length=8192"),
        instead="seq_length up to 4096",
        outcome="error silent never",
    ),
    Known(
        "KNOWN073",
        "bridge",
        ">=0.5,<0.6",
        when="model_name names mimov2flash",
        title="MiMo-V2-Flash's values are scaled",
        why="attention_value_scale is read from the config and then not used.",
        symptom="the model's attention_value_scale is not applied: its attention is silently wrong",
        issue="NVIDIA-NeMo/Megatron-Bridge#4155",
        source=(
            BRIDGE_MIMO_V2_FLASH_MODEL.says(
                "MiMoV2FlashTEDotProductAttention.forward", absent="_attention_value_scale", versions=">=0.5,<0.6"
            ),
        ),
        launch=Example("bridge", f"{_MODELS}mimo_v2_flash.mimo_v2_flash_provider.MiMoV2FlashModelProvider"),
        outcome="error silent never",
    ),
    Known(
        "KNOWN074",
        "bridge",
        "<0.4",
        when="model_name names gemma3vl and cp > 1 and sequence_parallel",
        title="Gemma 3's embeddings are split for CP before sequence parallelism",
        why="They are scattered over the tensor-parallel ranks first; slicing the parts for CP gives each rank other "
        "tokens than its labels.",
        symptom="embeddings are scattered for sequence parallelism before the CP split: each rank silently trains on "
        "other tokens than its labels",
        issue="NVIDIA-NeMo/Megatron-Bridge#2932",
        source=(
            BRIDGE_GEMMA3_VL_MODEL.says(
                "Gemma3VLModel.forward", absent="Apply SP scatter after CP slice", versions="<0.4"
            ),
        ),
        launch=Example(
            "bridge",
            f"{_MODELS}gemma_vl.gemma3_vl_provider.Gemma3VLModelProvider model.context_parallel_size=2 "
            "model.tensor_model_parallel_size=2 model.sequence_parallel=true",
            "te=2.18 bridge=0.3.1",
        ),
        instead="context_parallel_size 1",
        fixes=(_WITHOUT_CP,),
        outcome="error silent never",
    ),
)

register_rows(ROWS, __name__)
