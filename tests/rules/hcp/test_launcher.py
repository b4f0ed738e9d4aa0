"""HCP rules on what each launcher does with the sizes."""

from __future__ import annotations

from support.launches import ACTOR, BRIDGE_HCP, BY_TOKENS, OVERRIDE
from support.rules import Row, test_text, test_verdict

__all__ = ["test_text", "test_verdict"]

VERL_HCP = f"{BY_TOKENS}{ACTOR}context_parallel_size=4 {OVERRIDE}cp_comm_type=a2a+p2p"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("HCP010", "bridge-provider", BRIDGE_HCP, "", "error silent"),
    ("HCP010", "verl", f"{VERL_HCP} {OVERRIDE}hierarchical_context_parallel_sizes=[2,2]", "", "error silent"),
    (
        "HCP010",
        "verl",
        f"{VERL_HCP} {OVERRIDE}hierarchical_context_parallel_sizes=[2,3,2] {OVERRIDE}softmax_type=learnable",
        "te=2.14.0 einops=false mcore=0.16.1",
        "all: CP010 HCP010",
    ),  # and not what the hierarchy would lack
    ("HCP010", "verl", "", "cp=5", "needs cp_comm_type"),
    (
        "HCP010",
        "bridge-provider",
        "model.hierarchical_context_parallel_sizes=${oc.env:X}",
        "cp=4 cp_comm_type=a2a+p2p",
        "needs hcp_sizes",
    ),
    ("HCP011", "bridge", f"{BRIDGE_HCP}dist.use_decentralized_pg=true", "", "error crash"),
    ("HCP011", "bridge", f"{BRIDGE_HCP}dist.use_decentralized_pg=true", "bridge=0.4.0", "error crash"),
    ("HCP011", "bridge", f"{BRIDGE_HCP}dist.use_decentralized_pg=true", "bridge=0.3.1", "error silent"),
    ("HCP011", "bridge", "", "hcp_sizes=2,2 use_decentralized_pg=true bridge=0.3.1", "error silent never"),
    ("HCP011", "bridge", "", "cp_comm_type=a2a,a2a+p2p hcp_sizes=null use_decentralized_pg=true", "needs cp"),
    ("HCP011", "verl", "", "cp=3 use_decentralized_pg=true", "not concerned"),
    ("HCP020", "bridge", "", "hcp_sizes=2,2 einops=false mcore=0.12", "fine"),
    ("HCP020", "verl", "", "hcp_sizes=2,4", "not concerned"),
    ("HCP020", "mlm", "", "hcp_sizes=8 einops=false mcore=0.13", "error crash init"),
    ("HCP022", "mlm", "", "cp=4 cp_comm_type=a2a+p2p", "fine"),
    ("HCP022", "mlm", "", "", "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("HCP010", "bridge-provider", "", "cp=4 cp_comm_type=a2a+p2p hcp_sizes=8", "Bridge provider,"),
    ("HCP010", "verl", "", "cp=4 cp_comm_type=a2a+p2p hcp_sizes=2,2", "initialize_model_parallel | a flat type |"),
    ("HCP011", "bridge", "", "hcp_sizes=2,2 use_decentralized_pg=true", "start-up fails"),
]
