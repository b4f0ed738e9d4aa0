"""CP rules on the attention implementation, by backend and version."""

from __future__ import annotations

from support.launches import CP
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("CP006", "mlm", f"{CP} 2 --spec local", "", "error"),
    ("CP006", "mlm", f"{CP} 2 --attention-backend local --spec local", "", "error"),
    ("CP006", "mlm", f"{CP} 2 --transformer-impl local --spec some.module some_spec", "", "fine"),
    ("CP006", "mlm", "", "cp=2 attention_backend=local", "error crash init"),
    # The dev branch's own attention gathers; its constructor refuses the other ways.
    ("CP006", "mlm", f"{CP} 2 --spec local --cp-comm-type all_gather", "mcore_branch=dev", "fine"),
    ("CP006", "mlm", f"{CP} 2 --spec local --cp-comm-type p2p", "mcore_branch=dev", "error"),
    ("CP006", "mlm", f"{CP} 2 --spec local --cp-comm-type all_gather", "mcore_branch=main", "error"),
    ("CP006", "mlm", "", "", "not concerned"),
    ("CP006", "mlm", f"{CP} 2 --spec", "", "fine"),
    ("CP012", "mlm", f"{CP} 2", "attention_mask=arbitrary", "error"),
    ("CP012", "mlm", f"{CP} 2", "attention_mask=padding", "error"),
    ("CP012", "mlm", f"{CP} 2", "attention_mask=padding thd=true", "fine"),
    # Upstream's own test hybrid_mr_mcore_te_tp1_pp2_dsv4_hybrid_mhc_mtp; the compressed attention is not TE's.
    ("CP012", "mlm", f"{CP} 2 --attention-backend unfused", "attention_variant=dsv4_hybrid", "fine"),
    ("CP012", "mlm", f"{CP} 2 --attention-backend unfused", "attention_variant=dsa", "error"),
    ("CP012", "bridge-provider", "", "cp=1", "not concerned"),
    ("CP012", "bridge", "", "", "needs cp"),
    ("CP013", "mlm", f"{CP} 2 --attention-backend flash --flash-attention-version 4", "", "needs te"),
    ("CP013", "mlm", f"{CP} 2 --attention-backend flash --flash-attention-version 4", "te=2.17", "fine"),
    ("CP013", "mlm", f"{CP} 2 --attention-backend flash --flash-attention-version 4", "te=2.18", "error"),
    (
        "CP013",
        "mlm",
        f"{CP} 2 --attention-backend flash --flash-attention-version 4 --cp-comm-type a2a+p2p "
        "--hierarchical-context-parallel-sizes 1 2",
        "te=2.20",
        "error",
    ),
    ("CP013", "mlm", "", "cp=2 flash_attention_version=4", "not concerned"),
    ("CP013", "mlm", "", "attention_backend=flash flash_attention_version=4", "not concerned"),
    ("CP013", "bridge", "", "attention_backend=flash flash_attention_version=4", "needs cp"),
    ("CP013", "mlm", f"{CP} 2 --attention-backend flash --flash-attention-version 4", "te=2.19", "fine"),
    ("CP016", "bridge-provider", "", "qk_clip=true attention_backend=fused te=2.12 fp8=hybrid thd=true", "fine"),
    ("CP016", "mlm", "", "qk_clip=true fp8=hybrid fp8_dot_product_attention=true", "error crash first-forward"),
    ("CP016", "mlm", "--qk-clip --attention-backend fused", "te=2.8", "error crash first-forward"),
    (
        "CP016",
        "bridge-provider",
        "",
        "qk_clip=true attention_backend=auto te=2.10 thd=true",
        "error crash first-forward",
    ),
    ("CP016", "bridge", "", "", "not concerned"),
    ("CP016", "mlm", "", "qk_clip=true fp8_multi_head_attention=true", "needs te"),
    ("CP016", "mlm", "", "qk_clip=true fp8_multi_head_attention=true fp8=hybrid", "error crash first-forward"),
    ("CP016", "bridge-provider", "", "qk_clip=true attention_backend=fused te=2.11 thd=true", "fine"),
    ("CP016", "mlm", "", "qk_clip=true attention_backend=fused te=2.9", "fine"),
]
