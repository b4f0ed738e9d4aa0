"""PACK rules on the rows that a data set makes."""

from __future__ import annotations

from support.launches import PACKED
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    (
        "PACK001",
        "bridge",
        f"{PACKED}model.context_parallel_size=2 model.tensor_model_parallel_size=3 model.sequence_parallel=true",
        "",
        "error",
    ),
    ("PACK001", "bridge", f"{PACKED}model.context_parallel_size=2 model.sequence_parallel=false", "", "fine"),
    ("PACK002", "bridge", f"{PACKED}model.context_parallel_size=2", "", "needs pad_seq_to_mult"),
    (
        "PACK002",
        "bridge",
        f"{PACKED}model.context_parallel_size=2 dataset.offline_packing_specs.pad_seq_to_mult=null",
        "",
        "error",
    ),
    (
        "PACK002",
        "bridge",
        f"{PACKED}model.context_parallel_size=1 dataset.offline_packing_specs.pad_seq_to_mult=1",
        "",
        "not concerned",
    ),
    ("PACK003", "bridge", "dataset.packing_buffer_size=64 train.micro_batch_size=2", "", "needs bridge"),
    ("PACK003", "bridge", "dataset.packing_buffer_size=64 train.micro_batch_size=2", "bridge=0.6", "fine"),
    ("PACK003", "bridge", "dataset.enable_in_batch_packing=true train.micro_batch_size=1", "", "error"),
]
