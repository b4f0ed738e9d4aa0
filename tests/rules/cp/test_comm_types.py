"""CP rules on communication types."""

from __future__ import annotations

from support.launches import CP, HCP
from support.rules import FixRow, Row, test_fixes, test_verdict

__all__ = ["test_fixes", "test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("CP004", "mlm", f"{CP} 2 --cp-comm-type ulysses", "", "error"),
    ("CP004", "mlm", f"{CP} 2 --cp-comm-type p2p", "", "fine"),
    ("CP004", "bridge", "model.context_parallel_size=2 model.cp_comm_type=allgather", "", "needs attention_variant"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    (
        "CP004",
        "mlm",
        f"{CP} 2 --num-layers 3 --cp-comm-type p2p allgather a2a",
        "",
        ("cp_comm_type=p2p all_gather a2a", "cp_comm_type=p2p"),
    ),
    (
        "CP023",
        "mlm",
        f"{HCP} --num-layers 2 --cp-comm-type a2a a2a+p2p",
        "te=1.9",
        ("cp_comm_type=p2p hierarchical_context_parallel_sizes=null",),
    ),
]
