"""PACK rules on masks and boundaries of packed data."""

from __future__ import annotations

from support.launches import CP
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

CONTIGUOUS = "--cp-partition-mode contiguous"
WIDE = "--sequence-packing-scheduler dp_balanced --kv-channels"
DEV = "mcore=0.19.0 mcore_branch=dev"
SCHEDULED = f"{CONTIGUOUS} --sequence-packing-scheduler dp_balanced"

VERDICTS: list[Row] = [
    # validate_args switches the mask off where documents mask each other, also beside --sft.
    ("PACK013", "mlm", "--sft --dataloader-inter-document-masking", "mcore=0.19.0", "fine"),
    # NVIDIA/Megatron-LM#7417: what dev's scheduler says of its rows leaves heads of 256 channels without a backend.
    ("PACK023", "mlm", f"{WIDE} 256", DEV, "error crash first-forward"),
    ("PACK023", "mlm", f"{WIDE} 255", DEV, "fine"),
    ("PACK023", "mlm", f"{WIDE} 256", f"{DEV} te=2.20.2", "error crash first-forward"),
    ("PACK023", "mlm", f"{WIDE} 256", f"{DEV} te=2.21.0", "fine"),
    ("PACK023", "mlm", f"{WIDE} 256", "mcore=0.20.0 mcore_branch=main", "not concerned"),
    ("PACK023", "mlm", f"{WIDE} 256 --multi-latent-attention", DEV, "not concerned"),
    ("PACK023", "mlm", "--kv-channels 256", DEV, "not concerned"),
    ("PACK023", "mlm", "--kv-channels 256 --dynamic-context-parallel", DEV, "error crash first-forward"),
    ("PACK023", "mlm", "--sequence-packing-scheduler dp_balanced", DEV, "needs head_dim"),
    # rule, dialect, launch, assumed, verdict
    ("PACK006", "mlm", f"{CP} 2 --dataloader-inter-document-masking --sft", "", "fine"),
    ("PACK006", "bridge", "", "inter_document_masking=true sft=false cp=2", "not concerned"),
    ("PACK012", "mlm", f"{CP} 2 {CONTIGUOUS} --experimental-attention-variant gdn", "", "error"),
    ("PACK012", "mlm", f"{CP} 2 {SCHEDULED}", "", "error crash config"),
    ("PACK012", "mlm", f"{CP} 2 {SCHEDULED} --experimental-attention-variant dsa", "", "error crash config"),
    ("PACK012", "mlm", f"{CP} 2 {SCHEDULED} --experimental-attention-variant dsv4_hybrid", "", "fine"),
    ("PACK012", "mlm", f"{CP} 1 {CONTIGUOUS}", "", "fine"),  # no rank has a part of a sequence
    (
        "PACK012",
        "bridge",
        "model.context_parallel_size=2 model.cp_partition_mode=contiguous "
        "model.experimental_attention_variant=dsv4_hybrid",
        "",
        "fine",
    ),
    ("PACK013", "mlm", "--sft", "mcore=0.15", "fine"),
    ("PACK013", "mlm", "--sft", "mcore=0.16", "error crash training"),
    # MockSFTDataset of the dev branch has a __getitem__ of its own, without the assertion; main has no such dataset.
    ("PACK013", "mlm", "--sft --mock-data", "mcore=0.19 mcore_branch=dev", "fine"),
    ("PACK013", "mlm", "--sft", "mcore=0.19 mcore_branch=dev", "error crash training"),
    ("PACK013", "mlm", "--sft --mock-data", "mcore=0.19 mcore_branch=main", "error crash training"),
    ("PACK013", "mlm", "", "", "not concerned"),
    ("PACK013", "bridge", "", "sft=true attention_mask_in_dataloader=true", "not concerned"),
]
