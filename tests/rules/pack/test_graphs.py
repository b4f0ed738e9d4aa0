"""PACK rules about CUDA graphs, as tables."""

from __future__ import annotations

from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

_SFT = "--sft --no-create-attention-mask-in-dataloader"
_GRAPHS = "--cuda-graph-impl transformer_engine"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("PACK014", "mlm", f"{_SFT} {_GRAPHS}", "mcore=0.16.1", "error crash training"),
    ("PACK014", "mlm", f"{_SFT} {_GRAPHS}", "mcore_branch=dev", "not concerned"),
    ("PACK014", "mlm", f"{_SFT} {_GRAPHS} --cuda-graph-scope attn mlp", "", "error crash training"),
    ("PACK014", "mlm", f"{_SFT} {_GRAPHS} --cuda-graph-scope full", "", "error crash training"),
    ("PACK014", "mlm", f"{_SFT} {_GRAPHS} --cuda-graph-modules mlp moe_router", "", "fine"),
    ("PACK014", "mlm", f"{_SFT} {_GRAPHS} --cuda-graph-scope mlp", "", "fine"),
    ("PACK014", "mlm", f"{_SFT} --cuda-graph-impl local", "", "not concerned"),
    ("PACK014", "mlm", _GRAPHS, "", "not concerned"),
    ("PACK014", "bridge", "", "thd=true cuda_graph_impl=transformer_engine", "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("PACK014", "mlm", f"{_SFT} {_GRAPHS}", "", "found: packed data with cuda_graph_impl transformer_engine"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("PACK014", "mlm", f"{_SFT} {_GRAPHS}", "", ("cuda_graph_impl=none",)),
]
