"""ATTN rules, as tables."""

from __future__ import annotations

from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("ATTN001", "mlm", "--attention-backend flash", "", "not concerned"),
    ("ATTN001", "mlm", "--attention-backend local", "", "error crash config"),
    ("ATTN001", "mlm", "--attention-backend local --spec local", "", "fine"),
    ("ATTN001", "mlm", "--attention-backend local --spec local more", "", "fine"),
    ("ATTN001", "mlm", "--attention-backend local --spec a.module function", "", "error crash config"),
    (
        "ATTN001",
        "mlm",
        "python pretrain_gpt.py --attention-backend local --use-checkpoint-args \\\n --load x\n",
        "",
        "needs spec",
    ),
    ("ATTN001", "bridge", "model.attention_backend=local", "", "not concerned"),
    ("ATTN002", "mlm", "--rope-type rope", "", "not concerned"),
    ("ATTN002", "mlm", "", "", "not concerned"),
    ("ATTN002", "mlm", "--rope-type yarn", "", "error crash config"),
    ("ATTN002", "mlm", "--rope-type yarn", "mcore=0.14.0", "error crash config"),
    ("ATTN002", "mlm", "--rope-type yarn", "mcore=0.13.1", "fine"),
    ("ATTN002", "mlm", "--rope-type yarn --multi-latent-attention", "", "fine"),
    ("ATTN002", "bridge", "model.rope_type=yarn", "", "not concerned"),
    ("ATTN003", "mlm", "--batch-invariant-mode --attention-backend flash", "mcore=0.16.0", "fine"),
    ("ATTN003", "mlm", "--batch-invariant-mode --attention-backend fused", "mcore=0.16.0", "error crash config"),
    ("ATTN003", "mlm", "--batch-invariant-mode", "mcore=0.19.0", "error crash config"),
    ("ATTN003", "mlm", "--batch-invariant-mode", "mcore=0.15.3", "fine"),
    ("ATTN003", "mlm", "--batch-invariant-mode", "mcore_branch=dev mcore=0.19.0", "error crash config"),
    ("ATTN003", "mlm", "--attention-backend fused", "mcore=0.19.0", "not concerned"),
    (
        "ATTN003",
        "bridge",
        "model.batch_invariant_mode=true model.attention_backend=local",
        "mcore=0.19.0",
        "error crash config",
    ),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("ATTN001", "mlm", "--attention-backend local", "", "found: with no spec"),
    ("ATTN001", "mlm", "--attention-backend local --spec a.module function", "", "found: with spec a.module"),
    ("ATTN002", "mlm", "--rope-type yarn", "", "found: rope_type yarn"),
    ("ATTN003", "mlm", "--batch-invariant-mode --attention-backend fused", "mcore=0.19.0", "found: fused"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("ATTN001", "mlm", "--attention-backend local", "", ("spec=local", "attention_backend=auto")),
    ("ATTN002", "mlm", "--rope-type yarn", "", ("rope_type=rope",)),
    (
        "ATTN003",
        "bridge",
        "model.batch_invariant_mode=true model.attention_backend=fused model.context_parallel_size=1",
        "mcore=0.19.0",
        ("model.attention_backend=flash", "model.batch_invariant_mode=false"),
    ),
]
