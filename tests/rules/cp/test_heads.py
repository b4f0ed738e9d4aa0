"""CP rules, as tables."""

from __future__ import annotations

from support.launches import KV, TP
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("CP007", "bridge", "", "cp_comm_type=a2a,a2a+p2p", "not concerned"),
    (
        "CP007",
        "bridge-provider",
        "",
        "cp=2 cp_comm_type=a2a heads=6 num_query_groups=8 tp=2",
        "error crash first-forward",
    ),
    ("CP007", "verl", "", "", "not concerned"),
    ("CP007", "verl", "", "cp=null cp_comm_type=a2a", "needs cp"),
    ("CP008", "mlm", f"{TP} 4 --num-attention-heads 32 {KV} 8", "tp=2 kv_heads=1 mcore=0.16", "fine"),
    ("CP008", "mlm", "", "", "not concerned"),
    ("CP008", "mlm", "", "tp=3 group_query_attention=true mcore=0.15", "error crash config"),
]
