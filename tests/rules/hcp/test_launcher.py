"""HCP rules on what each launcher does with the sizes."""

from __future__ import annotations

from support.launches import ACTOR, BRIDGE_HCP, OVERRIDE
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

VERL_HCP = f"{ACTOR}context_parallel_size=4 {OVERRIDE}cp_comm_type=a2a+p2p"

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
    ("HCP011", "bridge", f"{BRIDGE_HCP}dist.use_decentralized_pg=true", "", "error crash"),
    ("HCP011", "bridge", f"{BRIDGE_HCP}dist.use_decentralized_pg=true", "bridge=0.4.0", "error crash"),
    ("HCP011", "bridge", f"{BRIDGE_HCP}dist.use_decentralized_pg=true", "bridge=0.3.1", "error silent"),
]
