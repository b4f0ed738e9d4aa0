"""A rule for each part of Megatron-Bridge that refuses launches at start-up."""

from __future__ import annotations

from megatron_hcp.rules.rule import Example
from megatron_hcp.rules.start.row import StartRow, rule_of
from megatron_hcp.rules.upstream import (
    BRIDGE_COMM_OVERLAP,
    BRIDGE_CONFIG,
    BRIDGE_HYBRID_PROVIDER,
    BRIDGE_MIXED_PRECISION,
    BRIDGE_SFT_CONFIG,
)
from megatron_hcp.validators.outcome import Guard

_STATED = "bridge=0.6.0 world_size=8"
_HYBRID = "model._target_=megatron.bridge.models.hybrid.hybrid_provider.HybridModelProvider"
_SFT = "dataset._target_=megatron.bridge.training.config.GPTSFTDatasetConfig"


def _example(words: str) -> Example:
    return Example("bridge", words, _STATED)


ROWS = (
    StartRow(
        "START009",
        BRIDGE_CONFIG,
        "ConfigContainer.validate",
        "async_save is only supported with ckpt_format",
        ">=0.3",
        "Megatron-Bridge's ConfigContainer.validate",
        _example("checkpoint.save=out checkpoint.async_save=true checkpoint.ckpt_format=torch_dist"),
        _example("checkpoint.save=out checkpoint.async_save=true checkpoint.ckpt_format=zarr"),
    ),
    StartRow(
        "START010",
        BRIDGE_COMM_OVERLAP,
        "CommOverlapConfig._get_model_comm_overlap_cfgs",
        "disable full recomputation when enabling overlap_moe_expert_parallel_comm",
        ">=0.3",
        "Megatron-Bridge's CommOverlapConfig",
        _example("comm_overlap.overlap_moe_expert_parallel_comm=true model.num_moe_experts=8"),
        _example("comm_overlap.overlap_moe_expert_parallel_comm=true model.num_moe_experts=1"),
    ),
    StartRow(
        "START011",
        BRIDGE_MIXED_PRECISION,
        "MixedPrecisionConfig.finalize",
        "fp4 and fp8 cannot be used simultaneously",
        ">=0.3",
        "Megatron-Bridge's MixedPrecisionConfig",
        _example("mixed_precision.fp4=e2m1 mixed_precision.fp8=null"),
        _example("mixed_precision.fp4=e2m1 mixed_precision.fp8=hybrid"),
    ),
    StartRow(
        "START012",
        BRIDGE_HYBRID_PROVIDER,
        "HybridModelProvider.finalize",
        "mamba_chunk_size must be at least 1",
        ">=0.6",
        "Megatron-Bridge's model providers",
        _example(f"{_HYBRID} model.mamba_chunk_size=128"),
        _example(f"{_HYBRID} model.mamba_chunk_size=0"),
    ),
    StartRow(
        "START013",
        BRIDGE_SFT_CONFIG,
        "GPTSFTDatasetConfig.validate",
        "Hugging Face split and materialization settings require hf_dataset, not dataset_root",
        ">=0.6",
        "Megatron-Bridge's dataset configs",
        _example(f"{_SFT} dataset.dataset_root=data"),
        _example(f"{_SFT} dataset.dataset_root=data dataset.hf_rewrite=true"),
    ),
)
"""By id. An id stays with its part for ever."""

RULES = {row.id: rule_of(row, __name__) for row in ROWS}
_BY_PATH = {row.file.path: row for row in ROWS}
_BY_FOLDER = {"megatron/bridge/models/": ROWS[3], "megatron/bridge/data/": ROWS[4]}


def row_of_bridge(guard: Guard) -> StartRow:
    """The row of the part that a guard stands in; what the container calls elsewhere is the container's."""
    path = guard.path.removeprefix("src/")
    by_folder = (row for folder, row in _BY_FOLDER.items() if path.startswith(folder))
    return _BY_PATH.get(path) or next(by_folder, ROWS[0])
