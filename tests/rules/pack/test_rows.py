"""PACK rules on the rows that a data set makes."""

from __future__ import annotations

from support.launches import PACKED
from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

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
    ("PACK001", "bridge", "", "", "not concerned"),
    ("PACK001", "bridge-provider", "", "packed_sequence_size=4096 cp=1", "not concerned"),
    ("PACK001", "mlm", "", "cp=2 packing=offline", "not concerned"),
    ("PACK001", "bridge-provider", "", "packed_sequence_size=null cp=2 packing=offline", "fine"),
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
    ("PACK003", "bridge-provider", "", "packing=offline", "not concerned"),
    ("PACK003", "bridge", "", "micro_batch_size=2 packing=in_batch", "fine"),
    ("PACK003", "bridge", "", "", "not concerned"),
    ("PACK003", "bridge", "", "packing_buffer_size=64 micro_batch_size=null", "fine"),
    ("PACK003", "bridge", "", "micro_batch_size=2 bridge=0.7 packing=energon", "error crash config"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("PACK002", "bridge-provider", "", "packed_sequence_size=2 cp=2 pad_seq_to_mult=null", "multiple of 1"),
    ("PACK002", "bridge", f"{PACKED}model.context_parallel_size=2", "pad_seq_to_mult=1", "a multiple of 1 at context"),
    ("PACK002", "bridge", f"{PACKED}model.context_parallel_size=2", "pad_seq_to_mult=1", "| a multiple of 4 |"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("PACK003", "bridge", "", "pack_sequences_in_batch=true micro_batch_size=1", ("train.micro_batch_size=2",)),
]
