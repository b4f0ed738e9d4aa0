"""CP009 to CP015: kinds of attention, by communication type and Transformer Engine version."""

from __future__ import annotations

from support.launches import CP
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("CP014", "mlm", f"{CP} 2 --fp8-format hybrid --fp8-recipe custom --fp8-multi-head-attention", "te=2.16", "error"),
    ("CP014", "mlm", f"{CP} 2 --fp8-format hybrid --fp8-recipe custom --fp8-multi-head-attention", "te=2.15", "fine"),
    ("CP015", "mlm", f"{CP} 2 --multi-latent-attention", "", "needs te"),
    (
        "CP015",
        "mlm",
        f"{CP} 2 --multi-latent-attention --cp-comm-type a2a --sft",
        "te=2.10 mcore=0.18",
        "not concerned",
    ),
    (
        "CP015",
        "mlm",
        f"{CP} 2 --multi-latent-attention --cp-comm-type a2a "
        "--qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 192",
        "te=2.4",
        "not concerned",
    ),
]
