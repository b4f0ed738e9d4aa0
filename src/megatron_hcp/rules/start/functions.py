"""A rule for each function of Megatron-LM that refuses launches at start-up."""

from __future__ import annotations

from megatron_hcp.rules.rule import Example
from megatron_hcp.rules.start.row import StartRow, rule_of
from megatron_hcp.rules.upstream import (
    ARGUMENTS,
    CORE_DOT_PRODUCT_ATTENTION,
    DDP,
    EXTENSION_TE,
    FSDP_ADAPTER,
    MICROBATCHES,
    MODEL_PARALLEL_CONFIG,
    OPTIMIZER_CONFIG,
    PARALLEL_STATE,
    TRANSFORMER_CONFIG,
)
from megatron_hcp.validators.outcome import Guard

_MODEL = (
    "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 "
    "--micro-batch-size 1"
)

ROWS = (
    StartRow(
        "START001",
        ARGUMENTS,
        "validate_args",
        "assert not args.bf16",
        ">=0.12",
        "Megatron-LM's validate_args",
        Example("mlm", f"{_MODEL} --bf16", "mcore=0.16.1 world_size=1"),
        Example("mlm", f"{_MODEL} --bf16 --fp16", "mcore=0.16.1 world_size=1"),
    ),
    StartRow(
        "START002",
        MODEL_PARALLEL_CONFIG,
        "ModelParallelConfig.__post_init__",
        "raise ValueError",
        ">=0.12",
        "megatron-core's ModelParallelConfig",
        Example("mlm", f"{_MODEL} --pipeline-model-parallel-size 2", "mcore=0.16.1 world_size=2"),
        Example("mlm", f"{_MODEL} --defer-embedding-wgrad-compute", "mcore=0.16.1 world_size=2"),
    ),
    StartRow(
        "START003",
        TRANSFORMER_CONFIG,
        "TransformerConfig.__post_init__",
        "raise ValueError",
        ">=0.12",
        "megatron-core's TransformerConfig",
        Example("mlm", _MODEL, "mcore=0.16.1 world_size=1"),
        Example("mlm", f"{_MODEL} --cpu-offloading-num-layers 3", "mcore=0.16.1 world_size=1"),
    ),
    StartRow(
        "START004",
        TRANSFORMER_CONFIG,
        "MLATransformerConfig.__post_init__",
        "raise ValueError",
        ">=0.13",
        "megatron-core's MLATransformerConfig",
        Example("mlm", f"{_MODEL} --multi-latent-attention --no-rope-fusion", "mcore=0.16.1 world_size=1"),
        Example(
            "mlm",
            f"{_MODEL} --multi-latent-attention --no-rope-fusion --attention-output-gate",
            "mcore=0.16.1 world_size=1",
        ),
    ),
    StartRow(
        "START005",
        ARGUMENTS,
        "core_transformer_config_from_args",
        "assert not args.swiglu",
        ">=0.12,<0.20",
        "Megatron-LM's core_transformer_config_from_args",
        Example("mlm", f"{_MODEL} --squared-relu --no-bias-gelu-fusion", "mcore=0.16.1 world_size=1"),
        Example(
            "mlm",
            f"{_MODEL} --squared-relu --swiglu --no-bias-gelu-fusion --no-bias-swiglu-fusion",
            "mcore=0.16.1 world_size=1",
        ),
    ),
    StartRow(
        "START006",
        PARALLEL_STATE,
        "initialize_model_parallel",
        "raise RuntimeError",
        ">=0.12",
        "megatron-core's initialize_model_parallel",
        Example("mlm", _MODEL, "mcore=0.16.1 world_size=1"),
        Example("mlm", f"{_MODEL} --sharp-enabled-group dp", "mcore=0.16.1 world_size=1"),
    ),
    StartRow(
        "START007",
        DDP,
        "DistributedDataParallel.__init__",
        "Cannot average in collective when calculating per-token loss",
        ">=0.12",
        "megatron-core's DistributedDataParallel",
        Example("mlm", f"{_MODEL} --calculate-per-token-loss", "mcore=0.16.1 world_size=1"),
        Example("mlm", f"{_MODEL} --calculate-per-token-loss --ddp-average-in-collective", "mcore=0.16.1 world_size=1"),
    ),
    StartRow(
        "START008",
        OPTIMIZER_CONFIG,
        "OptimizerConfig.__post_init__",
        "can only be fp32 when not using precision-aware optimizer",
        ">=0.12",
        "megatron-core's OptimizerConfig",
        Example("mlm", f"{_MODEL} --exp-avg-dtype fp32", "mcore=0.16.1 world_size=1"),
        Example("mlm", f"{_MODEL} --exp-avg-dtype fp8", "mcore=0.16.1 world_size=1"),
    ),
    StartRow(
        "START034",
        EXTENSION_TE,
        "TEDotProductAttention.__init__",
        "deterministic_mode is on and we are using DotProductAttention from",
        ">=0.12",
        "what builds megatron-core's layers",
        Example("mlm", f"{_MODEL} --softmax-type off-by-one", "mcore=0.16.1 world_size=1 te=2.10.0"),
        Example("mlm", f"{_MODEL} --softmax-type off-by-one", "mcore=0.16.1 world_size=1 te=2.7.0"),
    ),
)
"""By id. An id stays with its function for ever."""

RULES = {row.id: rule_of(row, __name__) for row in ROWS}
_MOE = "megatron/core/transformer/moe"
_BY_HELPER = {
    "megatron/training/argument_utils.py": "START005",
    "megatron/training/determinism.py": "START001",
    MICROBATCHES.path: "START006",
    PARALLEL_STATE.path: "START006",
    MODEL_PARALLEL_CONFIG.path: "START002",
    "megatron/core/distributed/distributed_data_parallel_config.py": "START007",
    "megatron/training/training.py": "START007",
    FSDP_ADAPTER.path: "START007",
    "megatron/core/optimizer_param_scheduler.py": "START008",
    "megatron/core/optimizer/fully_sharded_optimizer.py": "START008",
    EXTENSION_TE.path: "START034",
    CORE_DOT_PRODUCT_ATTENTION.path: "START034",
    **dict.fromkeys(("hybrid_builders.py", "mamba_builders.py"), "START034"),
    **dict.fromkeys((f"{_MOE}/experts.py", f"{_MOE}/shared_experts.py", f"{_MOE}/token_dispatcher.py"), "START034"),
}
"""The rule of the function that calls what stands in a file of helpers."""
_BY_FUNCTION = {(row.file.path, row.function): row for row in ROWS}
_BY_NAME = {row.function: row for row in ROWS}
_BY_ID = {row.id: row for row in ROWS}


def row_of(guard: Guard) -> StartRow:
    """The row of the function that a guard stands in, or for a helper that of the function that calls it."""
    if guard.repo != "megatron-lm":
        from megatron_hcp.rules.start.frameworks import row_of_framework

        return row_of_framework(guard)
    path = guard.path.removeprefix("src/")
    own = _BY_FUNCTION.get((path, guard.function)) or _BY_NAME.get(guard.function)
    return own or _BY_ID[_BY_HELPER.get(path) or ("START001" if path == ARGUMENTS.path else "START003")]
