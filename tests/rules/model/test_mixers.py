"""MODEL rules on mixers other than attention, as tables."""

from __future__ import annotations

from support.launches import CP, HCP
from support.rules import FixRow, Row, test_fixes, test_verdict

__all__ = ["test_fixes", "test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("MODEL001", "mlm", f"{CP} 2 --hybrid-layer-pattern *-*-", "", "not concerned"),
    ("MODEL001", "mlm", f"{CP} 2 --hybrid-layer-pattern M*", "", "needs hidden_size"),
    (
        "MODEL001",
        "mlm",
        "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2 "
        "--hybrid-layer-pattern M* --hidden-size 1024",
        "",
        "warning",
    ),
    ("MODEL002", "mlm", f"{CP} 2 --cp-comm-type allgather --experimental-attention-variant dsa", "mcore=0.18", "error"),
    ("MODEL002", "mlm", "--experimental-attention-variant dsa --position-embedding-type rope", "", "error"),
    ("MODEL002", "mlm", "--experimental-attention-variant dsa", "", "fine"),
    ("MODEL003", "mlm", f"{CP} 2 --experimental-attention-variant gdn", "", "needs mcore"),
    ("MODEL003", "mlm", f"{CP} 2 --experimental-attention-variant gated_delta_net", "mcore=0.17", "error"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    (
        "MODEL002",
        "mlm",
        f"{HCP} --experimental-attention-variant dsa",
        "mcore=0.19",
        ("cp_comm_type=all_gather hierarchical_context_parallel_sizes=null",),
    ),
]
