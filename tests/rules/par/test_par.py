"""PAR rules, as tables."""

from __future__ import annotations

from support.launches import ACTOR
from support.rules import Row, test_text, test_verdict

__all__ = ["test_text", "test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("PAR001", "mlm", "--sequence-parallel", "", "info note never"),
    ("PAR001", "verl", f"{ACTOR}sequence_parallel=True", "", "info note never"),
    ("PAR001", "verl", f"{ACTOR}tensor_model_parallel_size=1", "", "not concerned"),  # verl turns its default off
    ("PAR001", "bridge", "model.tensor_model_parallel_size=1 model.sequence_parallel=true", "", "needs bridge"),
    (
        "PAR001",
        "bridge",
        "model.tensor_model_parallel_size=1 model.sequence_parallel=true",
        "bridge=0.3",
        "error crash config",
    ),
    (
        "PAR001",
        "bridge",
        "model.tensor_model_parallel_size=1 model.sequence_parallel=true",
        "bridge=0.4",
        "info note never",
    ),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    (
        "PAR001",
        "bridge",
        "model.tensor_model_parallel_size=1 model.sequence_parallel=true",
        "bridge=0.3",
        "constructor fails",
    ),
    (
        "PAR001",
        "bridge",
        "model.tensor_model_parallel_size=1 model.sequence_parallel=true",
        "bridge=0.4",
        "switched off with a warning",
    ),
]
