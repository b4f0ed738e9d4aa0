"""MTP rules, as tables."""

from __future__ import annotations

from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

_MTP = "--mtp-num-layers 1"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("MTP001", "mlm", "", "", "not concerned"),
    ("MTP001", "mlm", _MTP, "", "error crash config"),
    ("MTP001", "mlm", f"{_MTP} --position-embedding-type yarn", "", "error crash config"),
    ("MTP001", "mlm", f"{_MTP} --position-embedding-type rope", "", "fine"),
    ("MTP001", "mlm", f"{_MTP} --position-embedding-type none", "", "fine"),
    ("MTP001", "mlm", f"{_MTP} --use-rotary-position-embeddings", "mcore=0.16.1", "fine"),
    ("MTP001", "mlm", f"{_MTP} --use-rotary-position-embeddings", "mcore=0.17.0", "error crash config"),
    ("MTP001", "mlm", f"{_MTP} --use-rotary-position-embeddings", "", "needs mcore"),
    ("MTP001", "bridge", "model.mtp_num_layers=1 model.position_embedding_type=yarn", "", "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("MTP001", "mlm", _MTP, "", "found: 1 prediction layers with position_embedding_type learned_absolute"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("MTP001", "mlm", _MTP, "", ("position_embedding_type=rope",)),
]
