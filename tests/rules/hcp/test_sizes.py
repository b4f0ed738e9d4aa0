"""HCP rules on the sizes of the levels: what each launcher and version says."""

from __future__ import annotations

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.rules.registry import RULES
from support.launches import ACTOR, BRIDGE_BARE, BRIDGE_HCP, CP, HCP, LEVELS, OVERRIDE
from support.rules import FixRow, Row, launch, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

WITHOUT_CP = BRIDGE_BARE.replace("size=4", "size=1")
VERL_HCP = f"{ACTOR}context_parallel_size=4 {OVERRIDE}cp_comm_type=a2a+p2p"

TO_ONE_LEVEL = (
    "cp_comm_type=p2p hierarchical_context_parallel_sizes=null",
    "cp_comm_type=a2a hierarchical_context_parallel_sizes=null",
)
"""What the last two fixes write wherever both flat types fit."""

EMPTY = "model.hierarchical_context_parallel_sizes=[]"
FLAT = "model.context_parallel_size=2 model.cp_comm_type=p2p"

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
    ("HCP001", "verl", "", "cp=2 cp_comm_type=a2a+p2p", "error silent never"),
    ("HCP001", "bridge", "", "cp_comm_type=a2a+p2p", "needs cp"),
    ("HCP001", "bridge", "", "cp=1", "not concerned"),
    ("HCP001", "bridge", f"{WITHOUT_CP.replace('null', '[]')}", "bridge=0.4.0", "fine"),  # the product of none is 1
    ("HCP001", "bridge", f"{BRIDGE_BARE.replace('null', '[]')}", "bridge=0.4.0", "error crash config"),
    ("HCP001", "bridge", f"{BRIDGE_BARE.replace('null', '[]')}", "cp=2 bridge=0.4.0", "error crash config"),
    ("HCP001", "bridge-provider", "", "cp=1", "not concerned"),
    ("HCP002", "mlm", f"{CP} 8 {LEVELS} 4 2", "", "all:"),
    ("HCP002", "mlm", f"{CP} 8 {LEVELS} 4 4", "", "all: HCP002"),
    ("HCP002", "mlm", f"{CP} 8 {LEVELS} 2 2 4", "", "all: HCP002 HCP003"),
    ("HCP002", "mlm", f"{CP} 1 {LEVELS} 2 2", "", "all: HCP002"),
    ("HCP002", "mlm", "", "hcp_sizes=4,1", "error crash config"),
    ("HCP002", "bridge", "", "cp=6 hcp_sizes=2,2 bridge=0.3.0", "error crash init"),
    ("HCP002", "bridge", "", "cp=8 hcp_sizes=4,4 bridge=0.4.0", "error crash config"),
    ("HCP002", "mlm", "", "hcp_sizes=0,4", "fine"),
    # Bridge asks whether the sizes are None, megatron-core whether there are any.
    ("HCP002", "bridge", f"{EMPTY} {FLAT}", "bridge=0.4.0", "error crash config"),
    ("HCP002", "bridge", f"{EMPTY} {FLAT}", "bridge=0.3.1", "not concerned"),
    ("HCP002", "bridge", f"{EMPTY} model.context_parallel_size=1", "bridge=0.4.0", "not concerned"),
    ("HCP002", "bridge-provider", f"{EMPTY} model.context_parallel_size=2", "bridge=0.4.0", "not concerned"),
    (
        "HCP002",
        "bridge",
        f"{EMPTY} model.context_parallel_size=2 model.cp_comm_type=a2a+p2p",
        "bridge=0.4",
        "all: HCP001",
    ),
    ("HCP002", "verl", "", "hcp_sizes=2,2", "not concerned"),
    ("HCP002", "bridge", "", "cp=6 hcp_sizes=2,2", "error crash init"),
    ("HCP002", "bridge-provider", "", "cp=8 hcp_sizes=4,4 bridge=0.4.0", "error crash init"),
    ("HCP003", "mlm", f"{CP} 8 {LEVELS} 8", "", "all: HCP003"),
    ("HCP003", "mlm", f"{CP} 8 {LEVELS} 2 2 2", "", "all: HCP003"),
    ("HCP003", "verl", "", "cp=8", "not concerned"),
    ("HCP003", "mlm", "", "cp=8 cp_comm_type=a2a+p2p", "fine"),
    ("HCP004", "mlm", f"{CP} 8 {LEVELS} -4 -2", "", "all: HCP004"),
    ("HCP004", "mlm", f"{CP} 8 {LEVELS} 0 8", "", "all: HCP004"),
    ("HCP004", "mlm", "", "hcp_sizes=1,4", "fine"),
    ("HCP005", "mlm", f"{CP} 8 {LEVELS} 1 8", "", "all: HCP005"),
    ("HCP005", "mlm", f"{CP} 8 {LEVELS} 8 1", "", "all: HCP005"),
    ("HCP005", "bridge", "model.cp_comm_type=${oc.env:X}", "", "needs cp_comm_type"),
    ("HCP005", "mlm", "", "cp=4 cp_comm_type=a2a+p2p", "fine"),
    ("HCP005", "mlm", "", "cp=3 cp_comm_type=a2a+p2p hcp_sizes=1,8", "fine"),
    ("HCP005", "mlm", f"{CP} 4 {LEVELS} 1 4 1", "", "fine"),  # HCP003
    ("HCP006", "mlm", f"{HCP} --cp-comm-type p2p", "", "warning silent"),
    ("HCP006", "mlm", f"{HCP} --cp-comm-type a2a", "", "warning silent"),
    ("HCP006", "mlm", f"{HCP} --cp-comm-type all_gather", "", "warning silent"),
    ("HCP006", "bridge", "", "hcp_sizes=4,2", "needs cp"),
    (
        "HCP006",
        "bridge",
        "model.cp_comm_type=${oc.env:X} model.hierarchical_context_parallel_sizes=${oc.env:X}",
        "cp=2",
        "needs cp_comm_type",
    ),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("HCP001", "verl", "", "cp=4 cp_comm_type=a2a+p2p", "context parallelism"),
    ("HCP001", "bridge", "", "cp=3 cp_comm_type=a2a+p2p hcp_sizes=null", "sequence (Bridge"),
    ("HCP001", "bridge", "", "cp=4 cp_comm_type=a2a+p2p hcp_sizes=null bridge=0.3.1", "the sequence |"),
    ("HCP001", "bridge", f"{BRIDGE_BARE}", "cp=8", "all-to-all over 4 ranks inside, a ring of 2 outside"),
    ("HCP001", "bridge-provider", BRIDGE_BARE, "", "1/4 of the sequence |"),
    ("HCP001", "mlm", f"{CP} 4 --cp-comm-type a2a+p2p", "", "two sizes with the product 4"),
    ("HCP001", "mlm", f"{CP} 3 --cp-comm-type a2a+p2p", "", "a flat communication type at CP size 3"),
    ("HCP002", "mlm", "", "hcp_sizes=2,2", "AssertionError without"),
    ("HCP003", "mlm", "", "cp=8 cp_comm_type=a2a+p2p hcp_sizes=8", "[8]: 1 level |"),
    ("HCP005", "mlm", "", "cp=4 cp_comm_type=a2a+p2p hcp_sizes=1,4", 'cp_comm_type "p2p"'),
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
    (
        "HCP001",
        "mlm",
        f"{CP} 4 --cp-comm-type a2a+p2p",
        "heads=8",
        ("hierarchical_context_parallel_sizes=2 2", "cp_comm_type=p2p", "cp_comm_type=a2a"),
    ),
    (
        "HCP001",
        "mlm",
        "",
        "cp=6 cp_comm_type=a2a,a2a+p2p",
        ("hierarchical_context_parallel_sizes=2 3", "cp_comm_type=a2a p2p", "cp_comm_type=a2a a2a"),
    ),
    ("HCP001", "bridge", BRIDGE_BARE, "tp=2 heads=3", ("model.cp_comm_type=p2p", "model.cp_comm_type=a2a")),
    (
        "HCP001",
        "bridge",
        "",
        "cp=4 cp_comm_type=a2a+p2p hcp_sizes=null nvlink_domain=6",
        ("model.hierarchical_context_parallel_sizes=[2,2]", "model.cp_comm_type=p2p", "model.cp_comm_type=a2a"),
    ),
    ("HCP001", "mlm", "", "cp=4 cp_comm_type=a2a+p2p gtp=8", ("cp_comm_type=p2p", "cp_comm_type=a2a")),
    ("HCP001", "mlm", "", "cp=4 cp_comm_type=a2a+p2p nvlink_domain=5", ("cp_comm_type=p2p", "cp_comm_type=a2a")),
    (
        "HCP002",
        "bridge-provider",
        "",
        "cp=8 hcp_sizes=4,4 nvlink_domain=6",
        (
            "model.hierarchical_context_parallel_sizes=[2,4]",
            "model.context_parallel_size=16",
            "model.hierarchical_context_parallel_sizes=null",
        ),
    ),
    (
        "HCP002",
        "mlm",
        f"{CP} 6 {LEVELS} 2 2",
        "heads=3 tp=4",
        ("context_parallel_size=4", "cp_comm_type=p2p hierarchical_context_parallel_sizes=null"),
    ),
    (
        "HCP002",
        "mlm",
        f"{CP} 6 {LEVELS} 2 2",
        "nvlink_domain=null gpus_per_node=3",
        ("hierarchical_context_parallel_sizes=3 2", "context_parallel_size=4", *TO_ONE_LEVEL),
    ),
    (
        "HCP003",
        "mlm",
        "",
        "cp=8 cp_comm_type=a2a+p2p hcp_sizes=2,2,2",
        ("hierarchical_context_parallel_sizes=2 4", "hierarchical_context_parallel_sizes=4 2", *TO_ONE_LEVEL),
    ),
    (
        "HCP003",
        "mlm",
        "",
        "cp=8 cp_comm_type=a2a+p2p hcp_sizes=8",
        ("hierarchical_context_parallel_sizes=4 2", *TO_ONE_LEVEL),
    ),
    ("HCP003", "mlm", f"{CP} 8 {LEVELS} 2 -2 -2", "", ("hierarchical_context_parallel_sizes=4 2", *TO_ONE_LEVEL)),
    (
        "HCP003",
        "mlm",
        f"{CP} 8 {LEVELS} 1 2 4",
        "",
        ("hierarchical_context_parallel_sizes=1 8", "hierarchical_context_parallel_sizes=4 2", *TO_ONE_LEVEL),
    ),
    (
        "HCP003",
        "mlm",
        f"{CP} 8 {LEVELS} 2 4 1",
        "",
        ("hierarchical_context_parallel_sizes=2 4", "hierarchical_context_parallel_sizes=4 2", *TO_ONE_LEVEL),
    ),
    (
        "HCP004",
        "mlm",
        "",
        "cp=4 hcp_sizes=-2,-2",
        (
            "hierarchical_context_parallel_sizes=2 2",
            "hierarchical_context_parallel_sizes=2 2",
            "hierarchical_context_parallel_sizes=null",
        ),
    ),
    (
        "HCP004",
        "mlm",
        f"{CP} 4 {LEVELS} -1 -4",
        "",
        ("hierarchical_context_parallel_sizes=1 4", "hierarchical_context_parallel_sizes=2 2", *TO_ONE_LEVEL),
    ),
    (
        "HCP004",
        "mlm",
        f"{CP} 4 {LEVELS} 1 -4",
        "",
        ("hierarchical_context_parallel_sizes=1 4", "hierarchical_context_parallel_sizes=2 2", *TO_ONE_LEVEL),
    ),
    ("HCP006", "mlm", "", "cp=4 hcp_sizes=2,2", ("cp_comm_type=a2a+p2p", "hierarchical_context_parallel_sizes=null")),
    ("HCP006", "mlm", "", "cp=4 cp_comm_type=p2p,a2a hcp_sizes=2,2", ("hierarchical_context_parallel_sizes=null",)),
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
