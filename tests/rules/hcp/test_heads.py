"""HCP rules on attention heads."""

from __future__ import annotations

from support.launches import CP, HCP, KV, LEVELS, TP
from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("HCP007", "mlm", f"--num-attention-heads 32 {KV} 8 {TP} 1 {CP} 16 {LEVELS} 8 2", "", "fine"),
    ("HCP007", "mlm", f"--num-attention-heads 32 {KV} 8 {TP} 2 {CP} 8 {LEVELS} 4 2", "", "fine"),
    ("HCP007", "mlm", f"--num-attention-heads 32 {KV} 8 {TP} 4 {CP} 8 {LEVELS} 4 2", "", "error"),
    ("HCP007", "mlm", f"--num-attention-heads 32 {KV} 8 {TP} 8 {HCP}", "", "error"),
    (
        "HCP007",
        "mlm",
        f"--num-attention-heads 32 {KV} 4 {TP} 8 {HCP}",
        "",
        "error",
    ),  # fewer KV heads than TP ranks: one each
    ("HCP007", "mlm", f"--num-attention-heads 32 {KV} 1 {TP} 1 {HCP}", "", "error"),  # MQA
    ("HCP007", "mlm", f"--num-attention-heads 12 {KV} 12 {TP} 1 {CP} 16 {LEVELS} 8 2", "", "error"),
    ("HCP007", "mlm", f"--num-attention-heads 24 {KV} 3 {TP} 1 {CP} 6 {LEVELS} 3 2", "", "fine"),
    (
        "HCP007",
        "mlm",
        f"--num-attention-heads 32 {KV} 1 --multi-latent-attention {CP} 8 {LEVELS} 4 2",
        "",
        "fine",
    ),  # MLA has as many keys as queries
    ("HCP007", "mlm", "", "cp=16 cp_comm_type=a2a+p2p", "fine"),
    ("HCP007", "bridge-provider", "", "cp=4 cp_comm_type=a2a+p2p hcp_sizes=1,4", "fine"),
    (
        "HCP007",
        "bridge-provider",
        "",
        "heads=4 num_query_groups=8 tp=2 cp=8 cp_comm_type=a2a+p2p hcp_sizes=4,2",
        "error crash first-forward",
    ),
    ("HCP007", "verl", "", "", "not concerned"),
    ("HCP007", "mlm", "", "heads=9 tp=2 cp=8 cp_comm_type=a2a+p2p hcp_sizes=4,2", "fine"),
    ("HCP007", "mlm", "", "cp=16 cp_comm_type=a2a+p2p hcp_sizes=3,2", "fine"),
    ("HCP007", "bridge", "", "cp=4 cp_comm_type=a2a+p2p hcp_sizes=-2,-2", "fine"),
    ("HCP007", "mlm", "", "cp=8 cp_comm_type=a2a+p2p hcp_sizes=8", "fine"),
    (
        "HCP007",
        "bridge",
        "",
        "heads=32 num_query_groups=1 tp=1 cp=4 cp_comm_type=a2a+p2p hcp_sizes=4,1",
        "error crash first-forward",
    ),
    (
        "HCP008",
        "mlm",
        f"--num-attention-heads 24 {KV} 3 --attention-backend fused {CP} 6 {LEVELS} 3 2",
        "te=2.20.2",
        "error",
    ),
    (
        "HCP008",
        "mlm",
        f"--num-attention-heads 24 {KV} 3 --attention-backend auto {CP} 6 {LEVELS} 3 2",
        "te=2.15.0",
        "warning",
    ),
    (
        "HCP008",
        "mlm",
        f"--num-attention-heads 24 {KV} 3 --attention-backend flash {CP} 6 {LEVELS} 3 2",
        "te=2.20.2",
        "fine",
    ),
    (
        "HCP008",
        "mlm",
        f"--num-attention-heads 24 {KV} 3 --attention-backend fused {CP} 6 {LEVELS} 3 2",
        "te=2.14.0",
        "fine",
    ),
    ("HCP008", "verl", "", "heads=24 num_query_groups=3 cp=6 cp_comm_type=a2a+p2p hcp_sizes=2,3", "fine"),
    (
        "HCP008",
        "mlm",
        f"--num-attention-heads 24 {KV} 6 {CP} 6 {LEVELS} 3 2 --attention-backend fused",
        "te=2.20.2 heads=3",
        "error crash first-forward",
    ),
    ("HCP008", "verl", "", "", "not concerned"),
    ("HCP008", "mlm", "", "heads=24 group_query_attention=true cp=6 cp_comm_type=a2a", "fine"),
    ("HCP008", "bridge", "model.cp_comm_type=${oc.env:X}", "", "needs cp_comm_type"),
    ("HCP008", "verl", "", "heads=24 num_query_groups=3 cp=6 cp_comm_type=a2a+p2p", "fine"),
    ("HCP008", "bridge-provider", "", "cp_comm_type=p2p,a2a+p2p", "needs cp"),
    ("HCP008", "mlm", "", "heads=2 cp=6 cp_comm_type=a2a+p2p tp=4", "fine"),
    (
        "HCP008",
        "mlm",
        "",
        "heads=3 kv_heads=3 cp=3 cp_comm_type=a2a attention_backend=fused te=2.15",
        "error crash first-forward",
    ),
    ("HCP019", "bridge-provider", "", "cp=1", "not concerned"),
    ("HCP019", "bridge-provider", "", "cp_comm_type=a2a,a2a+p2p", "needs cp"),
    ("HCP019", "verl", "", "heads=32 tp=3 cp=8 cp_comm_type=a2a,a2a+p2p", "fine"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    (
        "HCP007",
        "bridge",
        "",
        "heads=32 num_query_groups=8 tp=4 cp=8 cp_comm_type=a2a+p2p hcp_sizes=4,2",
        "and 2 KV heads",
    ),
    (
        "HCP007",
        "bridge",
        "",
        "heads=32 num_query_groups=8 tp=8 cp=4 cp_comm_type=a2a+p2p hcp_sizes=2,2",
        "and 1 KV head on",
    ),
    (
        "HCP008",
        "verl",
        "",
        "heads=24 num_query_groups=3 cp=6 cp_comm_type=a2a+p2p hcp_sizes=3,2 attention_backend=fused te=2.20.2",
        "first forward",
    ),
    (
        "HCP008",
        "mlm",
        "",
        "heads=6 group_query_attention=true num_query_groups=3 attention_backend=null cp=6 cp_comm_type=a2a+p2p "
        "hcp_sizes=3,2 te=2.15",
        "attention_backend auto",
    ),
    (
        "HCP008",
        "mlm",
        "",
        "heads=3 kv_heads=3 cp=3 cp_comm_type=a2a attention_backend=fused te=2.15",
        "attention_backend fused",
    ),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    (
        "HCP008",
        "verl",
        "",
        "heads=24 num_query_groups=3 attention_backend=auto cp=6 cp_comm_type=a2a+p2p hcp_sizes=3,2 te=2.15.0",
        (
            # verl passes no sizes on (HCP010): the ring clears both, so it comes first.
            "actor_rollout_ref.actor.megatron.override_transformer_config.cp_comm_type=p2p "
            "actor_rollout_ref.actor.megatron.override_transformer_config.hierarchical_context_parallel_sizes=null",
            "actor_rollout_ref.actor.megatron.override_transformer_config.attention_backend=flash",
        ),
    ),
    (
        "HCP019",
        "bridge-provider",
        "",
        "heads=8 tp=1 cp=8 cp_comm_type=a2a,a2a+p2p hcp_sizes=1,8 kv_heads=5",
        ("model.cp_comm_type=[p2p,p2p] model.hierarchical_context_parallel_sizes=null",),
    ),
]
