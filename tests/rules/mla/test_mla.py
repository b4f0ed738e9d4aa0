"""MLA rules, as tables."""

from __future__ import annotations

from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

VERDICTS: list[Row] = [
    ("MLA001", "mlm", "--multi-latent-attention --group-query-attention", "mcore=0.14.0", "fine"),
    # rule, dialect, launch, assumed, verdict
    ("MLA001", "mlm", "--group-query-attention", "", "not concerned"),
    ("MLA001", "mlm", "--multi-latent-attention", "", "fine"),
    ("MLA001", "mlm", "--multi-latent-attention --group-query-attention", "", "error crash config"),
    ("MLA001", "mlm", "--multi-latent-attention --group-query-attention", "mcore=0.16.0", "error crash config"),
    ("MLA001", "mlm", "--multi-latent-attention --group-query-attention", "mcore=0.15.3", "fine"),
    (
        "MLA001",
        "mlm",
        "python pretrain_gpt.py --multi-latent-attention --use-checkpoint-args \\\n --load x\n",
        "",
        "needs group_query_attention",
    ),
    ("MLA001", "bridge", "model.multi_latent_attention=true model.num_query_groups=4", "", "not concerned"),
    ("MLA002", "mlm", "--multi-latent-attention --transformer-impl local", "", "error crash init"),
    ("MLA002", "mlm", "--multi-latent-attention --transformer-impl local", "mcore=0.12.0", "error crash init"),
    ("MLA002", "mlm", "--multi-latent-attention", "", "fine"),
    ("MLA002", "mlm", "--transformer-impl local", "", "not concerned"),
    ("MLA002", "bridge", "model.multi_latent_attention=true model.transformer_impl=local", "", "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    (
        "MLA001",
        "mlm",
        "--multi-latent-attention --group-query-attention",
        "",
        "found: multi_latent_attention with group_query_attention",
    ),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    (
        "MLA002",
        "mlm",
        "--multi-latent-attention --transformer-impl local",
        "",
        ("transformer_impl=transformer_engine",),
    ),
    ("MLA001", "mlm", "--multi-latent-attention --group-query-attention", "", ("group_query_attention=false",)),
]
