"""LOAD rules: checkpoints and evaluation with other sizes, as tables."""

from __future__ import annotations

from support.launches import BRIDGE_BARE
from support.rules import Row, test_text, test_verdict

__all__ = ["test_text", "test_verdict"]

EVAL = (
    "model.context_parallel_size=4 dist.eval_context_parallel_size=2 model.cp_comm_type=p2p model.seq_length=4096 "
    "model.pipeline_model_parallel_size=1 "
)
SWAPPED = f"{EVAL} dist.use_decentralized_pg=true dist.use_gloo_process_groups=false"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("LOAD001", "bridge", "model.context_parallel_size=1 model.cp_comm_type=a2a+p2p", "", "not concerned"),
    ("LOAD001", "bridge-provider", BRIDGE_BARE, "", "not concerned"),
    ("LOAD001", "bridge-provider", "model.context_parallel_size=1 model.cp_comm_type=a2a+p2p", "hcp_sizes=2,2", "fine"),
    ("LOAD002", "bridge", EVAL + "dist.use_decentralized_pg=false", "", "warning"),
    (
        "LOAD002",
        "bridge",
        EVAL + "dist.use_decentralized_pg=true model.tensor_model_parallel_size=3",
        "world_size=16",
        "error",
    ),
    ("LOAD002", "bridge", f"{EVAL} dist.eval_context_parallel_size=4", "", "not concerned"),  # as in training
    ("LOAD002", "bridge-provider", f"{EVAL}", "", "not concerned"),
    ("LOAD002", "bridge", f"{EVAL} dist.use_decentralized_pg=false", "", "warning silent never"),
    ("LOAD002", "bridge", f"{SWAPPED} model.cp_comm_type=a2a+p2p", "", "error crash training"),
    ("LOAD002", "bridge", f"{SWAPPED} model.cp_comm_type=a2a", "heads=8 kv_heads=8 tp=1 world_size=8", "fine"),
    (
        "LOAD002",
        "bridge",
        f"{SWAPPED} model.cp_comm_type=a2a",
        "heads=6 kv_heads=3 tp=1 world_size=8",
        "error crash training",
    ),
    (
        "LOAD002",
        "bridge",
        f"{SWAPPED} model.cp_comm_type=a2a",
        "heads=9 kv_heads=6 tp=1 world_size=8",
        "error crash training",
    ),
    ("LOAD002", "bridge", f"{SWAPPED}", "seq_length=4094 tp=1 world_size=8", "error crash training"),
    ("LOAD002", "bridge", f"{SWAPPED}", "seq_length=null tp=1 world_size=8", "fine"),
    ("LOAD002", "bridge", f"{SWAPPED} dist.eval_context_parallel_size=1", "seq_length=4095 tp=1 world_size=8", "fine"),
    ("LOAD002", "bridge", f"{SWAPPED}", "tp=3 world_size=16", "error crash config"),
    # Bridge 0.6, ConfigContainer.validate: the layout must divide the ranks, also where no groups are switched.
    (
        "LOAD002",
        "bridge",
        f"{EVAL} dist.eval_context_parallel_size=3",
        "tp=1 world_size=8 bridge=0.6",
        "error crash config",
    ),
    ("LOAD002", "bridge", f"{EVAL} dist.eval_context_parallel_size=3", "tp=1 world_size=8 bridge=0.5.1", "warning"),
    ("LOAD002", "bridge", f"{EVAL} dist.eval_context_parallel_size=2", "tp=1 world_size=8 bridge=0.6", "warning"),
]

VERDICTS += [
    ("LOAD003", "bridge", "dist.use_decentralized_pg=true", "", "error crash config"),  # on unless switched off
    ("LOAD003", "bridge", f"{SWAPPED} dist.use_gloo_process_groups=true", "", "error crash config"),
    ("LOAD003", "bridge", SWAPPED, "", "fine"),
    ("LOAD003", "bridge", "dist.use_gloo_process_groups=true", "", "not concerned"),
    ("LOAD003", "bridge-provider", "dist.use_decentralized_pg=true", "", "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("LOAD002", "bridge", f"{SWAPPED}", "seq_length=4094 tp=1 world_size=8", "a multiple of 4 |"),
]
