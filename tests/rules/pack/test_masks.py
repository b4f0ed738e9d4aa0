"""PACK rules on masks and boundaries of packed data."""

from __future__ import annotations

from support.launches import CP
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("PACK006", "mlm", f"{CP} 2 --dataloader-inter-document-masking --sft", "", "fine"),
    ("PACK006", "bridge", "", "inter_document_masking=true", "not concerned"),
    ("PACK012", "mlm", f"{CP} 2 --cp-partition-mode contiguous --experimental-attention-variant gdn", "", "error"),
    (
        "PACK012",
        "bridge",
        "model.context_parallel_size=2 model.cp_partition_mode=contiguous "
        "model.experimental_attention_variant=dsv4_hybrid",
        "",
        "fine",
    ),
    ("PACK012", "mlm", "", "cp_partition_mode=contiguous", "fine"),
    ("PACK012", "bridge", "", "cp=2 cp_partition_mode=contiguous", "needs attention_variant"),
    ("PACK013", "mlm", "--sft", "mcore=0.15", "fine"),
    ("PACK013", "mlm", "", "", "not concerned"),
    ("PACK013", "mlm", "--sft", "mcore=0.16", "error crash training"),
    ("PACK013", "bridge", "", "sft=true", "not concerned"),
]
