"""MODEL rules on mixers other than attention, as tables."""

from __future__ import annotations

from support.launches import CP, HCP, TP
from support.rules import FixRow, Row, test_fixes, test_verdict

__all__ = ["test_fixes", "test_verdict"]

PATTERN = "--hybrid-layer-pattern"
MAMBA = f"{PATTERN} M*"
HEADS, GROUPS = "--mamba-num-heads", "--mamba-num-groups"
DSA = "--experimental-attention-variant dsa --no-rope-fusion"
GDN = "--experimental-attention-variant gated_delta_net"
VARLEN = "--context-parallel-size 2 --experimental-attention-variant dsv4_hybrid --cp-partition-mode contiguous"
DSV4 = "model.experimental_attention_variant=dsv4_hybrid model.cp_partition_mode=contiguous"
KEYS, VALUES = "--linear-num-key-heads", "--linear-num-value-heads"
GATHERED = "--cp-comm-type all_gather"

GDN_PROVIDER = "model.context_parallel_size=4 model.experimental_attention_variant=gated_delta_net"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("MODEL001", "mlm", f"{CP} 2 --hybrid-layer-pattern *-*-", "", "not concerned"),
    ("MODEL001", "mlm", f"{CP} 2 {MAMBA}", "", "needs hidden_size"),
    ("MODEL001", "mlm", f"{CP} 2 {MAMBA} --hidden-size 64", "mamba_head_dim=null", "needs mamba_head_dim"),
    ("MODEL001", "mlm", f"{CP} 2 {MAMBA} --hidden-size 64", "mamba_num_groups=null", "needs mamba_num_groups"),
    ("MODEL001", "mlm", f"{CP} 2 {MAMBA} --hidden-size 64 {GROUPS} 2", "", "fine"),  # 2 x 64 / 64 = 2 heads
    ("MODEL001", "mlm", f"{CP} 4 {MAMBA} --hidden-size 64 {GROUPS} 2", "", "error crash init"),
    ("MODEL001", "mlm", f"{CP} 3 {MAMBA} {HEADS} 6 {GROUPS} 3", "", "fine"),
    ("MODEL001", "mlm", f"{CP} 3 {MAMBA} {HEADS} 4 {GROUPS} 6", "", "error"),  # 4 heads on 3 ranks
    ("MODEL001", "mlm", f"{CP} 2 {TP} 2 {MAMBA} {HEADS} 9 {GROUPS} 4", "", "error"),  # 9 heads on 2 TP ranks
    ("MODEL001", "mlm", f"{CP} 2 {TP} 2 {MAMBA} {HEADS} 8 {GROUPS} 5", "", "error"),  # 5 groups on 2 TP ranks
    ("MODEL001", "mlm", f"{CP} 2 {TP} 2 {MAMBA} {HEADS} 8 {GROUPS} 4", "", "fine"),
    ("MODEL001", "mlm", f"{CP} 4 {MAMBA} {HEADS} 4 {GROUPS} 2", "", "fine"),  # each group on 2 ranks
    ("MODEL001", "mlm", f"{CP} 4 {MAMBA} {HEADS} 12 {GROUPS} 3", "", "error"),  # 3 groups on 4 ranks
    ("MODEL001", "mlm", f"{CP} 4 {MAMBA} {HEADS} 12 {GROUPS} 6", "", "error"),  # 6 groups on 4 ranks
    ("MODEL001", "mlm", f"{HCP}{MAMBA} {HEADS} 8", "", "warning slow training"),
    ("MODEL001", "mlm", f"{CP} 4 --cp-comm-type a2a+p2p {MAMBA} {HEADS} 8", "", "fine"),  # HCP001 says it
    ("MODEL001", "mlm", f"{HCP.replace('a2a+p2p', 'p2p')}{MAMBA} {HEADS} 8", "", "fine"),  # no level is used
    ("MODEL002", "mlm", f"{CP} 2", "", "not concerned"),
    ("MODEL002", "mlm", f"{CP} 2 --cp-comm-type allgather --experimental-attention-variant dsa", "mcore=0.18", "error"),
    ("MODEL002", "mlm", f"{CP} 2 --cp-comm-type allgather {DSA}", "mcore=0.19", "fine"),
    ("MODEL002", "mlm", "--experimental-attention-variant dsa --position-embedding-type rope", "", "error"),
    ("MODEL002", "mlm", "--experimental-attention-variant dsa", "", "fine"),
    ("MODEL002", "mlm", f"{CP} 1 {DSA}", "mcore=0.18", "fine"),
    ("MODEL002", "bridge", "", "attention_variant=dsa rope_fusion=false cp=1", "fine"),  # no exchange, of whatever type
    ("MODEL002", "bridge", "", "attention_variant=dsa rope_fusion=false cp_comm_type=p2p", "needs cp"),
    ("MODEL003", "mlm", f"{CP} 32", "", "not concerned"),
    # linear_cp_mode is chunkwise by default on dev: every CP rank has all heads of its TP rank.
    ("MODEL003", "mlm", f"{CP} 32 {GDN}", "mcore=0.19.0 mcore_branch=dev", "fine"),
    ("MODEL003", "mlm", f"{CP} 32 {GDN}", "mcore=0.19.0 mcore_branch=main", "error crash config"),
    ("MODEL003", "mlm", f"{CP} 2 {GDN} --tensor-model-parallel-size 3", "mcore=0.19.0 mcore_branch=dev", "error"),
    # A release without CP is wrong whatever the heads are.
    ("MODEL003", "bridge", GDN_PROVIDER, "mcore=0.17", "error crash config"),
    ("MODEL003", "bridge", GDN_PROVIDER, "mcore=0.19", "needs linear_num_key_heads"),
    ("MODEL003", "mlm", f"{CP} 2 --experimental-attention-variant gdn", "", "needs mcore"),
    ("MODEL003", "mlm", f"{CP} 2 {GDN}", "mcore=0.17", "error crash config"),
    ("MODEL003", "mlm", f"{CP} 2 {GDN}", "mcore=0.18.0", "fine"),  # the config is taken; KNOWN003
    ("MODEL003", "mlm", f"{CP} 1 {GDN}", "mcore=0.18.2", "fine"),
    ("MODEL003", "mlm", f"{CP} 2 {GDN}", "mcore=0.19.0", "fine"),
    ("MODEL003", "mlm", f"{CP} 1 {GDN}", "", "fine"),
    ("MODEL003", "mlm", f"{CP} 1 {GDN}", "mcore=0.17", "fine"),
    # That a count must be set, megatron-core says itself; here nothing is left to divide.
    ("MODEL003", "mlm", f"{CP} 2 {GDN}", "linear_num_key_heads=null mcore=0.18", "fine"),
    ("MODEL003", "mlm", f"{CP} 2 {GDN}", "linear_num_value_heads=null mcore=0.18", "fine"),
    ("MODEL003", "mlm", f"{CP} 4 {GDN} {KEYS} 4 {VALUES} 6", "mcore=0.19", "error"),
    # A G in a layer pattern is a gated delta net that no config check sees (16 key and 32 value heads by default).
    ("MODEL003", "mlm", f"{CP} 2 {PATTERN} G*G*", "mcore=0.17", "error silent never"),
    ("MODEL003", "mlm", f"{CP} 2 {PATTERN} G*G*", "mcore=0.18", "fine"),
    ("MODEL003", "mlm", f"{CP} 3 {PATTERN} G*G*", "mcore=0.18", "error crash first-forward"),
    ("MODEL003", "mlm", f"{CP} 3 {PATTERN} M*M*", "mcore=0.18", "not concerned"),
    ("MODEL002", "mlm", f"{CP} 2 {PATTERN} MDMD", "mcore=0.19", "error crash config"),
    ("MODEL002", "mlm", f"{CP} 2 {PATTERN} MDMD --cp-comm-type all_gather", "mcore=0.19", "fine"),
    ("MODEL002", "mlm", f"{CP} 2 {PATTERN} M*M*", "mcore=0.19", "not concerned"),
    ("MODEL003", "mlm", f"{CP} 4 {GDN} {KEYS} 6 {VALUES} 12", "mcore=0.19", "error"),
    ("MODEL007", "bridge", f"model.context_parallel_size=2 {DSV4}", "", "needs thd"),
    # The dev branch's dataset of many lengths gives packed rows.
    ("MODEL007", "mlm", f"{VARLEN} --use-varlen-dataset", "mcore_branch=dev", "fine"),
    ("MODEL007", "mlm", VARLEN, "mcore_branch=dev", "error"),
    ("MODEL007", "bridge", f"model.context_parallel_size=2 {DSV4}", "mcore=0.18", "error crash init"),
    ("MODEL007", "bridge", f"model.context_parallel_size=2 {DSV4}", "mcore=0.18 thd=true", "error crash init"),
    ("MODEL007", "bridge", f"model.context_parallel_size=2 {DSV4}", "mcore_branch=dev thd=true", "fine"),
    ("MODEL007", "bridge", f"model.context_parallel_size=2 {DSV4}", "mcore_branch=dev thd=false", "error"),
    ("MODEL007", "bridge", f"model.context_parallel_size=1 {DSV4}", "mcore=0.18", "not concerned"),
    ("MODEL007", "bridge", "model.context_parallel_size=2", "attention_variant=dsa", "not concerned"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("MODEL001", "mlm", f"{CP} 8 {MAMBA} {HEADS} 4 {GROUPS} 4", "", ("context_parallel_size=4",)),  # 2 and 1 fit too
    ("MODEL001", "mlm", f"{CP} 10 {MAMBA} {HEADS} 4 {GROUPS} 4", "", ("context_parallel_size=2",)),  # 4 is no divisor
    ("MODEL001", "mlm", f"{CP} 6 {MAMBA} {HEADS} 4 {GROUPS} 4", "", ("context_parallel_size=2",)),
    ("MODEL001", "mlm", f"{CP} 5 {MAMBA} {HEADS} 4 {GROUPS} 4", "", ("context_parallel_size=1",)),
    ("MODEL001", "mlm", f"{CP} 4096 {MAMBA} {HEADS} 4 {GROUPS} 4", "", ("context_parallel_size=4",)),
    ("MODEL001", "mlm", f"{CP} 4097 {MAMBA} {HEADS} 17 {GROUPS} 17", "", ()),  # wider than any CP group: not tried
    (
        "MODEL002",
        "mlm",
        f"{HCP} --experimental-attention-variant dsa",
        "mcore=0.19",
        ("cp_comm_type=all_gather hierarchical_context_parallel_sizes=null",),
    ),
    ("MODEL002", "mlm", f"{CP} 4 {GATHERED} {DSA}", "mcore=0.18", ("context_parallel_size=1",)),
    ("MODEL003", "mlm", f"{CP} 4 {GDN}", "mcore=0.17", ("context_parallel_size=1",)),
    ("MODEL003", "mlm", f"{CP} 8 {GDN} {KEYS} 4 {VALUES} 4", "mcore=0.19", ("context_parallel_size=4",)),
    ("MODEL003", "mlm", f"{CP} 8 {GDN} {KEYS} 4 {VALUES} 6", "mcore=0.19", ("context_parallel_size=2",)),
    ("MODEL003", "mlm", f"{CP} 8 {GDN} {KEYS} 6 {VALUES} 4", "mcore=0.19", ("context_parallel_size=2",)),
    ("MODEL003", "mlm", f"{CP} 10 {GDN} {KEYS} 4 {VALUES} 4", "mcore=0.19", ("context_parallel_size=2",)),
]
