"""LOSS rules: what a loss is divided by, as tables."""

from __future__ import annotations

from support.launches import ACTOR, CP, PACKED, PROVIDER
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("LOSS001", "mlm", f"{CP} 2 --sft", "", "warning"),
    ("LOSS001", "mlm", "--sft", "", "not concerned"),
    ("LOSS001", "bridge", "model.context_parallel_size=2 " + PACKED, "", "needs calculate_per_token_loss"),
    (
        "LOSS001",
        "bridge",
        "model.context_parallel_size=2 model.calculate_per_token_loss=true " + PACKED,
        "",
        "needs average_in_collective",
    ),
    (
        "LOSS001",
        "bridge",
        "model.context_parallel_size=2 model.calculate_per_token_loss=false",
        "finetune=false",
        "not concerned",
    ),
    ("LOSS002", "verl", f"{ACTOR}override_transformer_config.calculate_per_token_loss=True", "", "needs verl"),
    (
        "LOSS005",
        "mlm",
        "--tensor-model-parallel-size 2 --tensor-parallel-num-weight-shards 2 --ddp-average-in-collective",
        "",
        "not concerned",
    ),
    (
        "LOSS006",
        "bridge-provider",
        f"{PROVIDER} model.calculate_per_token_loss=false",
        "mcore=0.16.1 te=2.14",
        "all: LOSS006",
    ),
]
