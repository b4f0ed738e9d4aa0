"""Known bugs in Megatron-Bridge, and models that it supports only without context parallelism."""

from __future__ import annotations

from typing import Any

from megatron_hcp.rules.known.megatron import MIDDLE_STAGES
from megatron_hcp.rules.known.row import Known, register_rows
from megatron_hcp.rules.rule import Example, Fix
from megatron_hcp.rules.upstream import (
    BRIDGE_GEMMA2,
    BRIDGE_GEMMA3_VL,
    BRIDGE_GEMMA4,
    BRIDGE_GPT_STEP,
    BRIDGE_LOADERS,
    BRIDGE_MIMO_V2_FLASH,
    BRIDGE_QWEN3_VL,
    BRIDGE_STATE,
)

_PACKED = (
    "dataset.packed_sequence_specs.packed_sequence_size=4096 dataset.packed_sequence_specs.pad_seq_to_mult=4 "
    "train.micro_batch_size=1"
)
_CP = (
    "model.context_parallel_size=2 model.cp_comm_type=p2p model.calculate_per_token_loss=true "
    "ddp.average_in_collective=false "
)
_STAGES = "model.pipeline_model_parallel_size=3 model.num_layers=6 "
_MODELS = "megatron.bridge.models."
_WITHOUT_CP = Fix({"cp": 1}, "no context parallelism")


def _model(provider: str, cp: int = 2) -> Example:
    return Example("bridge", f"model._target_={_MODELS}{provider} model.context_parallel_size={cp} ", "te=2.18")


def _good(provider: str) -> Example:
    return _model(provider, 1)._replace(assume="te=2.18 bridge=0.6")


_REFUSED: dict[str, Any] = {
    "outcome": "error crash init",
    "instead": "context_parallel_size 1",
    "fixes": (_WITHOUT_CP,),
}
"""What rows have in common whose models are supported only without context parallelism."""
_GEMMA2 = "gemma.gemma2_provider.Gemma2ModelProvider"
_GEMMA3_VL = "gemma_vl.gemma3_vl_provider.Gemma3VLModelProvider"
_GEMMA4 = "gemma.gemma4_provider.Gemma4DenseProvider"
_MIMO = "mimo_v2_flash.mimo_v2_flash_provider.MiMoV2FlashModelProvider"
_QWEN3_VL = "qwen_vl.qwen3_vl_provider.Qwen3VLModelProvider"

ROWS: tuple[Known, ...] = (
    MIDDLE_STAGES._replace(
        id="KNOWN009",
        package="bridge",
        versions="<0.5",
        when="packing = offline and pp > 2",
        title="Middle pipeline stages get the boundaries of Bridge's packed rows",
        why="get_batch returns nothing for stages that are neither first nor last, so their attention is causal over "
        "the whole row instead of each sequence.",
        source=(BRIDGE_GPT_STEP.says("get_batch", absent="_middle_pp_stage_needs_batch", versions=">=0.2,<0.5"),),
        launch=Example("bridge", _STAGES + _PACKED, "bridge=0.4.2"),
        fixes=(Fix({"pp": 2}, "a pipeline of 2 stages"),),
    ),
    Known(
        "KNOWN010",
        "bridge",
        ">=0.3,<0.5.1",
        when="packing = offline and cp > 1",
        title="Only real boundaries and tokens of packed rows reach the CP split",
        why="The CP split passes cu_seqlens to Transformer Engine including the -1 that the collate function appends, "
        "and slices a placeholder attention mask wherever the batch contains one: in 0.5.0 this is an IndexError "
        "on every middle pipeline stage. Rows from Parquet files lose pad_seq_to_mult.",
        symptom="packed rows with CP fail before the first step: cu_seqlens are padded with -1, a placeholder mask is "
        "sliced (IndexError), Parquet rows lose pad_seq_to_mult",
        issue="NVIDIA-NeMo/Megatron-Bridge#4228, #4489, #4519",
        outcome="warning crash first-forward",
        source=(
            BRIDGE_GPT_STEP.says(
                "_partition_packed_batch_for_cp", absent="_trim_padded_cu_seqlens_for_cp", versions=">=0.3,<0.5.1"
            ),
        ),
        launch=Example("bridge", _CP + _PACKED, "te=2.18"),
    ),
    Known(
        "KNOWN011",
        "bridge",
        "<0.3",
        when="packing = offline and cp > 1",
        title="Packed rows are split for CP sequence by sequence",
        why="Before _partition_packed_batch_for_cp, the batch was split as if each row were one sequence, and "
        "cu_seqlens was split with it: attention gets metadata that matches neither the row nor the slice.",
        symptom="CP splits a packed row as if it were one sequence: the first forward pass fails, or attends to "
        "tokens of other sequences",
        issue="NVIDIA-NeMo/Megatron-Bridge#1292, #1964",
        outcome="error crash first-forward",
        source=(
            BRIDGE_GPT_STEP.says(
                "get_batch", absent="_partition_packed_batch_for_cp", versions=">=0.2,<0.3", where="checkout"
            ),
        ),
        launch=Example("bridge", _CP + _PACKED, "te=2.18 bridge=0.2.0"),
        good=Example("bridge", _CP + _PACKED, "te=2.18 bridge=0.5.1"),
        fixes=(_WITHOUT_CP,),
    ),
    Known(
        "KNOWN012",
        "bridge",
        ">=0.3",
        when="model_name names qwen3vl qwen3omni and cp > 1 and not calculate_per_token_loss",
        title="Qwen3-VL averages the loss per token under context parallelism",
        why="The model slices its batch itself, so ranks hold different numbers of answer tokens; with CP its "
        "constructor asserts calculate_per_token_loss.",
        symptom="the model asserts calculate_per_token_loss under context parallelism: building the model fails",
        issue="NVIDIA-NeMo/Megatron-Bridge#3746",
        outcome="error crash init",
        source=(
            BRIDGE_QWEN3_VL.says(
                "Qwen3VLModel.__init__",
                "only supports context parallelism with calculate_per_token_loss enabled",
                ">=0.4",
            ),
        ),
        launch=_model(_QWEN3_VL)._replace(
            text=f"model._target_={_MODELS}{_QWEN3_VL} model.context_parallel_size=2 "
            "model.calculate_per_token_loss=false"
        ),
        good=_model(_QWEN3_VL)._replace(
            text=f"model._target_={_MODELS}{_QWEN3_VL} model.context_parallel_size=2 "
            "model.calculate_per_token_loss=true",
            assume="te=2.18 bridge=0.6",
        ),
        instead="calculate_per_token_loss",
        fixes=(
            Fix(
                {"calculate_per_token_loss": True, "average_in_collective": False}, "divides by the tokens of the step"
            ),
        ),
    ),
    Known(
        "KNOWN013",
        "bridge",
        ">=0.1",
        when="model_name names gemma2 and cp > 1",
        title="Gemma 2 runs without context parallelism",
        why="Its attention softcaps the scores, which Bridge computes in its own module, and that module asserts that "
        "CP is off.",
        symptom="Gemma 2's attention doesn't support context parallelism: building the model fails",
        issue="NVIDIA-NeMo/Megatron-Bridge, gemma2_provider.py",
        source=(
            BRIDGE_GEMMA2.says("Gemma2DotProductAttention.__init__", "self.config.context_parallel_size", ">=0.2"),
        ),
        launch=_model(_GEMMA2),
        good=_good(_GEMMA2),
        **_REFUSED,
    ),
    Known(
        "KNOWN014",
        "bridge",
        ">=0.5",
        when="model_name names mimov2flash and cp > 1",
        title="MiMo-V2-Flash runs without context parallelism",
        why="Its layers use windows and sinks that Bridge doesn't support with CP; the provider asserts it.",
        symptom="Bridge's provider asserts that MiMo-V2-Flash runs without context parallelism: building the model "
        "fails",
        issue="NVIDIA-NeMo/Megatron-Bridge, mimo_v2_flash_provider.py",
        source=(BRIDGE_MIMO_V2_FLASH.says("", "MiMo-V2-Flash does not support context parallelism yet.", ">=0.5"),),
        launch=_model(_MIMO)._replace(assume="te=2.18 bridge=0.6"),  # where KNOWN073 is fixed
        good=_good(_MIMO),
        **_REFUSED,
    ),
    Known(
        "KNOWN015",
        "bridge",
        ">=0.6",
        when="model_name names gemma3vl and cp > 1",
        title="Gemma 3 with vision runs without context parallelism",
        why="Image tokens attend to each other in both directions, which Bridge implements as a bias on the scores; "
        "CP doesn't support this bias, and the provider rejects it.",
        symptom="Gemma 3's vision model doesn't support context parallelism because of its attention bias: building "
        "the model fails",
        issue="NVIDIA-NeMo/Megatron-Bridge, gemma3_vl_provider.py",
        source=(
            BRIDGE_GEMMA3_VL.says("", "Gemma 3 VL does not support context parallelism with attention bias.", ">=0.6"),
        ),
        launch=_model(_GEMMA3_VL),
        good=_good(_GEMMA3_VL),
        **_REFUSED,
    ),
    Known(
        "KNOWN016",
        "bridge",
        ">=0.6",
        when="model_name names gemma4dense and cp > 1",
        title="The dense Gemma 4 runs without context parallelism",
        why="Its layers are built with megatron-core's local attention, which asserts in every layer that CP is off; "
        "later releases reject CP in the provider.",
        symptom="the dense Gemma 4 is built with local attention, which supports only CP=1: building the model fails",
        issue="NVIDIA-NeMo/Megatron-Bridge#6120",
        source=(BRIDGE_GEMMA4.says("get_gemma4_layer_spec", "LocalSpecProvider()", ">=0.6"),),
        launch=_model(_GEMMA4),
        good=_good(_GEMMA4),
        **_REFUSED,
    ),
    Known(
        "KNOWN112",
        "bridge",
        ">=0.5,<0.6",
        when="use_decentralized_pg and eval_context_parallel_size > cp",
        title="Evaluation under a larger CP size gives a CP group's ranks the same rows",
        why="The loaders of validation and test data are split by the data-parallel ranks of training. A CP group of "
        "evaluation joins several of these.",
        symptom="a CP group of evaluation gets the rows of several data-parallel ranks of training, and each rank "
        "slices its own: the validation loss is silently wrong",
        issue="NVIDIA-NeMo/Megatron-Bridge#4785",
        outcome="warning silent never",
        source=(
            BRIDGE_LOADERS.says(
                "build_train_valid_test_data_loaders", absent="eval_dp_group", versions=">=0.5,<0.6", branches=()
            ),
        ),
        launch=Example(
            "bridge",
            "model.context_parallel_size=2 model.cp_comm_type=p2p model.seq_length=4096 "
            "dist.eval_context_parallel_size=4 dist.use_decentralized_pg=true dist.use_gloo_process_groups=false",
        ),
        instead="an evaluation with the layout of training",
        fixes=(Fix({"eval_context_parallel_size": None}, "evaluation uses the layout of training"),),
    ),
    Known(
        "KNOWN037",
        "bridge",
        ">=0.4,<0.6",
        when="vision_dp_when_cp and cp > 1",
        title="Encoding images on different CP ranks returns every gradient to them",
        why="Each rank encodes some images and gathers the others. The gather is called with a keyword argument, which "
        "older PyTorch rejects; its backward pass keeps the gradient from the rank's own part of the sequence only; "
        "and a rank without images skips it, while the others wait.",
        symptom="gathering the images' embeddings fails with a TypeError; where PyTorch accepts the call, the vision "
        "tower gets only part of its gradient",
        issue="NVIDIA-NeMo/Megatron-Bridge#4784",
        outcome="error crash first-forward",
        source=(
            BRIDGE_QWEN3_VL.says(
                "Qwen3VLModel.forward", absent="ensure_requires_grad_for_cp_collective", versions=">=0.4,<0.6"
            ),
        ),
        launch=_model(_QWEN3_VL)._replace(
            text=f"model._target_={_MODELS}{_QWEN3_VL} model.context_parallel_size=2 model.vision_dp_when_cp=true "
            "model.calculate_per_token_loss=true"
        ),
        instead="vision_dp_when_cp false",
        fixes=(Fix({"vision_dp_when_cp": False}, "every rank encodes all images"),),
    ),
    Known(
        "KNOWN124",
        "bridge",
        ">=0.3,<0.6",
        when="exit_signal_handler",
        title="The handler of the exit signal is installed in the trainer",
        why="GlobalState makes the handler and never enters it, so the signal ends the trainer before it has saved. "
        "Only data workers install theirs. Since 0.6 the state enters it.",
        symptom="train.exit_signal_handler has no effect on these releases: the signal ends the trainer without a save",
        issue="GlobalState._set_signal_handler, DistributedSignalHandler.__enter__",
        outcome="warning silent never",
        source=(BRIDGE_STATE.says("GlobalState._set_signal_handler", absent="__enter__", versions=">=0.3,<0.6"),),
        launch=Example("bridge", _CP + "train.exit_signal_handler=true ", "te=2.18 bridge=0.5.1"),
        instead="saving often enough (checkpoint.save_interval)",
    ),
)

register_rows(ROWS, __name__)
