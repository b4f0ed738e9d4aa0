"""HCP rules on the sizes of the levels: what each launcher and version says."""

from __future__ import annotations

from hcp.rules.engine import check_launch
from hcp.rules.registry import RULES
from support.launches import ACTOR, BRIDGE_BARE, BRIDGE_HCP, CP, HCP, LEVELS, OVERRIDE
from support.rules import FixRow, Row, launch, test_fixes, test_verdict

__all__ = ["test_fixes", "test_verdict"]

WITHOUT_CP = BRIDGE_BARE.replace("size=4", "size=1")
VERL_HCP = f"{ACTOR}context_parallel_size=4 {OVERRIDE}cp_comm_type=a2a+p2p"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("HCP001", "mlm", f"{CP} 4 --cp-comm-type a2a+p2p", "", "error crash config"),
    ("HCP001", "bridge", BRIDGE_BARE, "", "error silent never"),
    ("HCP001", "bridge", BRIDGE_BARE, "bridge=0.3.1", "error silent never"),
    ("HCP001", "bridge", BRIDGE_BARE, "bridge=0.4.0", "error crash config"),
    ("HCP001", "bridge-provider", BRIDGE_BARE, "bridge=0.6.0", "error silent never"),
    ("HCP001", "verl", VERL_HCP, "verl=0.9.1", "error silent never"),
    ("HCP001", "mlm", f"{CP} 1 --cp-comm-type a2a+p2p", "", "error"),
    ("HCP001", "bridge", WITHOUT_CP, "bridge=0.4.0", "error"),
    ("HCP001", "bridge", WITHOUT_CP, "bridge=0.3.1", "not concerned"),
    ("HCP001", "bridge", WITHOUT_CP, "", "needs bridge"),
    ("HCP001", "bridge-provider", WITHOUT_CP, "bridge=0.6.0", "not concerned"),
    ("HCP001", "verl", f"{ACTOR}context_parallel_size=1 {OVERRIDE}cp_comm_type=a2a+p2p", "", "not concerned"),
    ("HCP001", "mlm", f"{CP} 4 --num-layers 3 --cp-comm-type p2p a2a+p2p a2a", "", "error"),
    ("HCP001", "bridge-provider", BRIDGE_HCP, "", "fine"),  # HCP010 says it
    ("HCP001", "verl", f"{VERL_HCP} {OVERRIDE}hierarchical_context_parallel_sizes=[2,2]", "", "fine"),  # HCP010 says it
    ("HCP002", "mlm", f"{CP} 8 {LEVELS} 4 2", "", "all:"),
    ("HCP002", "mlm", f"{CP} 8 {LEVELS} 4 4", "", "all: HCP002"),
    ("HCP002", "mlm", f"{CP} 8 {LEVELS} 2 2 4", "", "all: HCP002 HCP003"),
    ("HCP002", "mlm", f"{CP} 1 {LEVELS} 2 2", "", "all: HCP002"),
    ("HCP003", "mlm", f"{CP} 8 {LEVELS} 8", "", "all: HCP003"),
    ("HCP003", "mlm", f"{CP} 8 {LEVELS} 2 2 2", "", "all: HCP003"),
    ("HCP004", "mlm", f"{CP} 8 {LEVELS} -4 -2", "", "all: HCP004"),
    ("HCP004", "mlm", f"{CP} 8 {LEVELS} 0 8", "", "all: HCP004"),
    ("HCP005", "mlm", f"{CP} 8 {LEVELS} 1 8", "", "all: HCP005"),
    ("HCP005", "mlm", f"{CP} 8 {LEVELS} 8 1", "", "all: HCP005"),
    ("HCP006", "mlm", f"{HCP} --cp-comm-type p2p", "", "error silent"),
    ("HCP006", "mlm", f"{HCP} --cp-comm-type a2a", "", "error silent"),
    ("HCP006", "mlm", f"{HCP} --cp-comm-type all_gather", "", "error silent"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    (
        "HCP001",
        "bridge-provider",
        BRIDGE_BARE,
        "",
        ("model.cp_comm_type=p2p", "model.cp_comm_type=a2a"),
    ),  # never sizes: they go nowhere
]


def test_hcp001_to_hcp024_without_hierarchical_cp_nothing_is_undecided() -> None:
    launches = [
        launch("mlm", "--num-layers 2"),
        launch("bridge", "model.context_parallel_size=1 model.cp_comm_type=p2p"),
        launch("mlm", f"{CP} 4 --cp-comm-type p2p"),
        launch("verl", f"{ACTOR}context_parallel_size=2"),
    ]
    for each in launches:
        report = check_launch(each, RULES)
        assert not [item.rule.id for item in report.not_checked if item.rule.id.startswith(("HCP", "TOPO001", "LOAD"))]
