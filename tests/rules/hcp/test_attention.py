"""HCP rules on biases, sinks and windows."""

from __future__ import annotations

from support.launches import BRIDGE_BARE, BRIDGE_HCP
from support.rules import FixRow, Row, test_fixes, test_verdict

__all__ = ["test_fixes", "test_verdict"]

WINDOWED = f"{BRIDGE_HCP} model.num_layers=2 model.window_size=[128,0]"
NEW = "te=2.20.2 mcore=0.17.0"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("HCP016", "bridge-provider", "", "", "not concerned"),
    ("HCP017", "bridge", "", "cp=4 cp_comm_type=a2a+p2p softmax_type=null", "fine"),
    ("HCP018", "bridge", f"{WINDOWED} model.window_attn_skip_freq=null", NEW, "error"),
    ("HCP018", "bridge", f"{WINDOWED} model.window_attn_skip_freq=2", NEW, "error"),
    ("HCP018", "bridge", f"{WINDOWED} model.window_attn_skip_freq=1", NEW, "fine"),
    (
        "HCP018",
        "bridge",
        f"{BRIDGE_HCP}model.num_layers=2 model.window_size=[-1,0] model.window_attn_skip_freq=null",
        NEW,
        "fine",
    ),
    (
        "HCP018",
        "bridge",
        f"{BRIDGE_HCP}model.num_layers=2 model.window_size=null model.window_attn_skip_freq=null",
        NEW,
        "fine",
    ),
    ("HCP018", "bridge", f"{WINDOWED} model.window_attn_skip_freq=2 model.cp_comm_type=[a2a,a2a+p2p]", NEW, "fine"),
    ("HCP018", "bridge", f"{WINDOWED} model.window_attn_skip_freq=2 model.cp_comm_type=[a2a+p2p,a2a]", NEW, "error"),
    ("HCP018", "bridge", f"{WINDOWED} model.window_attn_skip_freq=[0,1] model.cp_comm_type=[a2a+p2p,a2a]", NEW, "fine"),
    ("HCP018", "mlm", "", "cp=4 cp_comm_type=a2a+p2p hcp_sizes=4,1 window_size=128,0", "fine"),
    ("HCP018", "bridge", "model.cp_comm_type=${oc.env:X}", "", "needs cp_comm_type"),
    (
        "HCP018",
        "mlm",
        "",
        "cp=4 cp_comm_type=a2a+p2p hcp_sizes=4,1 window_size=128,0 attention_backend=fused",
        "error crash first-forward",
    ),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    (
        "HCP018",
        "bridge",
        f"{WINDOWED} model.num_layers=4 model.window_attn_skip_freq=2 model.num_attention_heads=8 "
        "model.num_query_groups=8 model.tensor_model_parallel_size=1",
        NEW,
        (
            "model.cp_comm_type=[a2a,a2a+p2p,a2a,a2a+p2p]",  # the hierarchy stays where it can
            "model.cp_comm_type=a2a model.hierarchical_context_parallel_sizes=null",
            "model.cp_comm_type=all_gather model.hierarchical_context_parallel_sizes=null",
        ),
    ),
    (
        "HCP018",
        "bridge-provider",
        "",
        "cp=4 cp_comm_type=a2a+p2p hcp_sizes=2,2 num_layers=2 window_size=128,0 window_attn_skip_freq=2",
        (
            "model.cp_comm_type=a2a model.hierarchical_context_parallel_sizes=null",
            "model.cp_comm_type=all_gather model.hierarchical_context_parallel_sizes=null",
            "model.cp_comm_type=[a2a,a2a+p2p]",  # last: a bare provider has no hierarchy (HCP010)
        ),
    ),
    (
        "HCP018",
        "bridge",
        f"{WINDOWED} model.window_attn_skip_freq=2",
        f"{NEW} num_layers=513",
        (
            "model.cp_comm_type=a2a model.hierarchical_context_parallel_sizes=null",
            "model.cp_comm_type=all_gather model.hierarchical_context_parallel_sizes=null",
        ),
    ),
    (
        "HCP018",
        "bridge",
        f"{WINDOWED} model.window_attn_skip_freq=2 model.cp_comm_type=[a2a+p2p,a2a+p2p]",
        f"{NEW} num_layers=4",
        (
            "model.cp_comm_type=[a2a,a2a] model.hierarchical_context_parallel_sizes=null",
            "model.cp_comm_type=[all_gather,all_gather] model.hierarchical_context_parallel_sizes=null",
        ),
    ),
    (
        "HCP018",
        "bridge",
        f"{WINDOWED} model.window_attn_skip_freq=2 model.cp_comm_type=[a2a+p2p,a2a+p2p,all_gather,a2a+p2p]",
        f"{NEW} num_layers=4",
        (
            "model.cp_comm_type=[a2a,a2a+p2p,all_gather,a2a+p2p]",
            "model.cp_comm_type=[a2a,a2a,all_gather,a2a] model.hierarchical_context_parallel_sizes=null",
            "model.cp_comm_type=[all_gather,all_gather,all_gather,all_gather] "
            "model.hierarchical_context_parallel_sizes=null",
        ),
    ),
    (
        "HCP018",
        "bridge",
        f"{BRIDGE_BARE} model.num_layers=2 model.window_size=[128,0] model.window_attn_skip_freq=3",
        NEW,
        ("model.cp_comm_type=a2a", "model.cp_comm_type=all_gather"),
    ),
    (
        "HCP018",
        "bridge",
        f"{WINDOWED} model.window_attn_skip_freq=2",
        f"{NEW} num_layers=512",
        (
            f"model.cp_comm_type=[{','.join(['a2a', 'a2a+p2p'] * 256)}]",
            "model.cp_comm_type=a2a model.hierarchical_context_parallel_sizes=null",
            "model.cp_comm_type=all_gather model.hierarchical_context_parallel_sizes=null",
        ),
    ),
]
