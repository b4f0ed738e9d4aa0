"""Known bugs of NeMo-RL's Megatron backend."""

from __future__ import annotations

from megatron_hcp.rules.known.condition import TIED
from megatron_hcp.rules.known.row import Known, register_rows
from megatron_hcp.rules.rule import Example, Fix
from megatron_hcp.rules.upstream import NEMO_RL_COMMON, NEMO_RL_DATA, NEMO_RL_FUSED, NEMO_RL_SETUP, NEMO_RL_WORKER_04

_MEGATRON = "policy.megatron_cfg."
_POLICY = f"{_MEGATRON}enabled=true policy.dtensor_cfg.enabled=false "
_PACKED = f"{_POLICY}policy.sequence_packing.enabled=true "
_FP8 = f"{_PACKED}{_MEGATRON}fp8_cfg.enabled=true {_MEGATRON}fp8_cfg.fp8=e4m3 "


def _policy(settings: str, assume: str = "") -> Example:
    return Example("nemo-rl", settings.strip(), assume)


ROWS: tuple[Known, ...] = (
    Known(
        "KNOWN105",
        "nemo_rl",
        ">=0.6,<0.7",
        when="megatron_enabled and sequence_packing and hybrid_pattern has M",
        title="Mamba layers start anew at each sequence of a packed row",
        why="megatron-core needs PackedSeqParams.total_tokens to know where the sequences of a row begin; NeMo-RL "
        "doesn't set it.",
        symptom="the state of Mamba layers silently crosses the boundaries of packed sequences",
        issue="NVIDIA-NeMo/RL#2529",
        outcome="error silent never",
        source=(
            NEMO_RL_DATA.says(
                "_pack_sequences_for_megatron", absent="total_tokens=packed", versions=">=0.6,<0.7", branches=()
            ),
        ),
        launch=_policy(_PACKED, "hybrid_pattern=M*-M"),
        instead="policy.sequence_packing.enabled=false",
        fixes=(Fix({"sequence_packing": False}, "rows of one sequence"),),
    ),
    Known(
        "KNOWN106",
        "nemo_rl",
        ">=0.5,<0.6",
        when="megatron_enabled and sequence_packing and fp8 != null and fp8_recipe = mxfp8",
        title="Packed rows are padded to what MXFP8 divides",
        why="Rows are padded to 16 tokens per rank for every recipe but blockwise; blocks of MXFP8 have 32.",
        symptom="packed rows are padded to 16 tokens per rank, but MXFP8 needs 32: about every second row fails in "
        "Transformer Engine",
        issue="NVIDIA-NeMo/RL#1884",
        outcome="warning crash training",
        source=(
            NEMO_RL_COMMON.says(
                "_get_pack_sequence_parameters_for_megatron", "divisor = 128 if use_blockwise_fp8 else 16", ">=0.5,<0.6"
            ),
        ),
        launch=_policy(f"{_FP8}{_MEGATRON}fp8_cfg.fp8_recipe=mxfp8"),
    ),
    Known(
        "KNOWN107",
        "nemo_rl",
        ">=0.4,<0.5",
        when="megatron_enabled and sequence_packing and fp8 != null and cp > 1",
        title="Packed rows are padded to what FP8 divides after the CP split",
        why="Sequences are padded to the least common multiple of 16 and 2 x CP x TP, so a rank's part of a row may "
        "have as few as 16 / CP tokens.",
        symptom="a rank's part of a packed row isn't a multiple of the 16 tokens that FP8 needs: the forward pass "
        "fails in Transformer Engine",
        issue="NVIDIA-NeMo/RL#1569",
        outcome="warning crash training",
        source=(
            NEMO_RL_WORKER_04.says("MegatronPolicyWorker.train", "pad_factor = math.lcm(16, pad_factor)", ">=0.4,<0.5"),
        ),
        launch=_policy(f"{_FP8}{_MEGATRON}context_parallel_size=2"),
        fixes=(Fix({"cp": 1}, "no context parallelism"),),
    ),
    Known(
        "KNOWN108",
        "nemo_rl",
        ">=0.6,<0.7",
        when=f"megatron_enabled and fused_linear_logprobs and model_name {TIED}",
        title="The fused loss reads the output weight that the embedding shares",
        why="It reads output_layer.weight, which is None if the weight is the embedding's.",
        symptom="the fused loss finds no output weight, because the model shares it with its embedding: AttributeError "
        "in the first forward pass",
        issue="NVIDIA-NeMo/RL#2363",
        outcome="error crash first-forward",
        source=(
            NEMO_RL_FUSED.says(
                "_gpt_forward_with_linear_ce_fusion",
                "output_weight_layer = self.output_layer.weight",
                ">=0.6,<0.7",
                branches=(),
            ),
        ),
        launch=_policy(f"{_POLICY}{_MEGATRON}use_linear_ce_fusion_loss=true policy.model_name=Qwen/Qwen3-0.6B"),
        fixes=(Fix({"fused_linear_logprobs": False}, "logits are computed"),),
    ),
    Known(
        "KNOWN109",
        "nemo_rl",
        ">=0.3",
        when="megatron_enabled and vpp > 1",
        title="NeMo-RL trains the whole model",
        why="NeMo-RL has no virtual pipeline: it drops the setting, or, where model_overrides passes it on, keeps the "
        "first of the model's chunks only.",
        symptom="NeMo-RL has no virtual pipeline: through 0.7 the setting is dropped, later only the first chunk of "
        "each rank's model is trained",
        issue="NVIDIA-NeMo/RL#1126, #2494",
        outcome="warning silent never",
        source=(NEMO_RL_SETUP.says("setup_model_and_optimizer", "model = model[0]", ">=0.6"),),
        launch=_policy(
            f"{_POLICY}{_MEGATRON}pipeline_model_parallel_size=2 {_MEGATRON}virtual_pipeline_model_parallel_size=2"
        ),
        good=_policy(f"{_POLICY}{_MEGATRON}pipeline_model_parallel_size=2", "nemo_rl=0.7"),
        instead="no virtual pipeline",
        fixes=(Fix({"vpp": None}, "no virtual pipeline"),),
    ),
)
register_rows(ROWS, __name__)
