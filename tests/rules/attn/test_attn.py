"""ATTN rules, as tables."""

from __future__ import annotations

from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

WORD = "model.batch_invariant_mode=true model.attention_backend=flash"
MEMBER = """\
model:
  batch_invariant_mode: true
  attention_backend: {_target_: megatron.core.transformer.enums.AttnBackend, _call_: true, _args_: [1]}
"""

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
    # Bridge hands over a word as text, which is no member of AttnBackend.
    ("ATTN003", "bridge", WORD, "mcore=0.19.0", "error crash config"),
    ("ATTN003", "bridge", WORD, "mcore=0.15.3", "fine"),
    ("ATTN003", "bridge", MEMBER, "mcore=0.19.0", "fine"),
    ("ATTN003", "bridge", MEMBER.replace("[1]", "[2]"), "mcore=0.19.0", "error crash config"),
    ("ATTN003", "bridge", "model.batch_invariant_mode=true", "mcore=0.19.0 attention_backend=flash", "fine"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("ATTN001", "mlm", "--attention-backend local", "", "found: with no spec"),
    ("ATTN001", "mlm", "--attention-backend local --spec a.module function", "", "found: with spec a.module"),
    ("ATTN002", "mlm", "--rope-type yarn", "", "found: rope_type yarn"),
    ("ATTN003", "mlm", "--batch-invariant-mode --attention-backend fused", "mcore=0.19.0", "found: fused"),
    ("ATTN003", "bridge", WORD, "mcore=0.19.0", "found: attention_backend flash as a string"),
    ("ATTN003", "bridge", WORD, "mcore=0.19.0", "wanted: _args_: [1]"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    (
        "ATTN003",
        "mlm",
        "--batch-invariant-mode --flash-attention-version 3 --attention-dropout 0 --attention-backend fused",
        "mcore=0.19.0",
        ("attention_backend=flash", "batch_invariant_mode=false"),
    ),
    ("ATTN001", "mlm", "--attention-backend local", "", ("spec=local", "attention_backend=auto")),
    ("ATTN001", "mlm", "--attention-backend local --spec a.b c", "", ("attention_backend=auto", "spec=local")),
    ("ATTN002", "mlm", "--rope-type yarn", "", ("rope_type=rope",)),
    (
        "ATTN003",
        "bridge",
        "model.batch_invariant_mode=true model.attention_backend=fused model.context_parallel_size=1",
        "mcore=0.19.0",
        ("model.batch_invariant_mode=false",),  # an override cannot write the member
    ),
]
