"""HCP rules on attention heads."""

from __future__ import annotations

from support.launches import CP, HCP, KV, LEVELS, TP
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("HCP007", "mlm", f"--num-attention-heads 32 {KV} 8 {TP} 1 {CP} 16 {LEVELS} 8 2", "", "fine"),
    ("HCP007", "mlm", f"--num-attention-heads 32 {KV} 8 {TP} 2 {CP} 8 {LEVELS} 4 2", "", "fine"),
    ("HCP007", "mlm", f"--num-attention-heads 32 {KV} 8 {TP} 4 {CP} 8 {LEVELS} 4 2", "", "error"),
    ("HCP007", "mlm", f"--num-attention-heads 32 {KV} 8 {TP} 8 {HCP}", "", "error"),
    (
        "HCP007",
        "mlm",
        f"--num-attention-heads 32 {KV} 4 {TP} 8 {HCP}",
        "",
        "error",
    ),  # fewer KV heads than TP ranks: one each
    ("HCP007", "mlm", f"--num-attention-heads 32 {KV} 1 {TP} 1 {HCP}", "", "error"),  # MQA
    ("HCP007", "mlm", f"--num-attention-heads 12 {KV} 12 {TP} 1 {CP} 16 {LEVELS} 8 2", "", "error"),
    ("HCP007", "mlm", f"--num-attention-heads 24 {KV} 3 {TP} 1 {CP} 6 {LEVELS} 3 2", "", "fine"),
    (
        "HCP007",
        "mlm",
        f"--num-attention-heads 32 {KV} 1 --multi-latent-attention {CP} 8 {LEVELS} 4 2",
        "",
        "fine",
    ),  # MLA has as many keys as queries
    (
        "HCP008",
        "mlm",
        f"--num-attention-heads 24 {KV} 3 --attention-backend fused {CP} 6 {LEVELS} 3 2",
        "te=2.20.2",
        "error",
    ),
    (
        "HCP008",
        "mlm",
        f"--num-attention-heads 24 {KV} 3 --attention-backend auto {CP} 6 {LEVELS} 3 2",
        "te=2.15.0",
        "warning",
    ),
    (
        "HCP008",
        "mlm",
        f"--num-attention-heads 24 {KV} 3 --attention-backend flash {CP} 6 {LEVELS} 3 2",
        "te=2.20.2",
        "fine",
    ),
    (
        "HCP008",
        "mlm",
        f"--num-attention-heads 24 {KV} 3 --attention-backend fused {CP} 6 {LEVELS} 3 2",
        "te=2.14.0",
        "fine",
    ),
]
