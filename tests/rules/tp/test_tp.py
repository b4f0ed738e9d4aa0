"""TP rules, as tables."""

from __future__ import annotations

from support.launches import TP
from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

_EXPERTS = "--num-experts 8 --num-layers 4"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("TP001", "mlm", "--num-attention-heads 7", "", "not concerned"),
    ("TP001", "mlm", f"{TP} 2 --num-attention-heads 7", "", "error crash config"),
    ("TP001", "bridge", "", "", "needs tp"),
    ("TP002", "mlm", f"{TP} 2", "", "not concerned"),
    ("TP002", "mlm", f"--tp-comm-overlap {TP} 2", "", "error crash config"),
    ("TP002", "mlm", f"--tp-comm-overlap {TP} 2 --sequence-parallel", "", "fine"),
    # One rank switches sequence parallelism off.
    ("TP002", "mlm", "--tp-comm-overlap --sequence-parallel", "", "error crash config"),
    ("TP002", "bridge", "", "tp_comm_overlap=true tp=2 sequence_parallel=false", "not concerned"),
    ("TP003", "mlm", f"{TP} 2", "", "not concerned"),
    ("TP003", "mlm", "--distribute-saved-activations", "", "error crash config"),
    ("TP003", "mlm", f"--distribute-saved-activations {TP} 2 --recompute-granularity full", "", "fine"),
    ("TP003", "mlm", f"--distribute-saved-activations {TP} 2", "", "error crash config"),
    ("TP003", "mlm", f"--distribute-saved-activations {TP} 2 --recompute-activations", "", "error crash config"),
    (
        "TP003",
        "mlm",
        f"--distribute-saved-activations {TP} 2 --sequence-parallel --recompute-granularity full",
        "",
        "error crash config",
    ),
    ("TP003", "bridge", "model.distribute_saved_activations=true", "tp=1", "fine"),
    (
        "TP003",
        "bridge",
        "model.distribute_saved_activations=true model.recompute_granularity=full",
        "tp=2 sequence_parallel=true",
        "error crash config",
    ),
    ("TP004", "mlm", "--ffn-hidden-size 1022", "", "not concerned"),
    ("TP004", "mlm", f"{TP} 4 --ffn-hidden-size 1024", "", "fine"),
    ("TP004", "mlm", f"{TP} 4 --ffn-hidden-size 1022", "", "error crash init"),
    ("TP004", "mlm", f"{TP} 2 --ffn-hidden-size 1022", "", "fine"),
    ("TP004", "bridge", "", "tp=2 num_experts=null", "needs ffn_hidden_size"),
    ("TP004", "bridge", "", "", "not concerned"),
    ("TP004", "bridge", "", "tp=1", "not concerned"),
    ("TP004", "mlm", f"{_EXPERTS} {TP} 4 --ffn-hidden-size 1022 --moe-layer-freq ([1]*4)", "etp=1", "fine"),
    # Where all layers have experts no MLP is built; shared experts are split as an MLP is.
    ("TP004", "mlm", f"{_EXPERTS} {TP} 4 --ffn-hidden-size 1022 --moe-ffn-hidden-size 512", "etp=1", "fine"),
    (
        "TP004",
        "mlm",
        f"{_EXPERTS} {TP} 4 --ffn-hidden-size 1022 --moe-ffn-hidden-size 512 --moe-layer-freq ([0]+[1]*3)",
        "etp=1",
        "error crash init",
    ),
    (
        "TP004",
        "mlm",
        f"{_EXPERTS} {TP} 4 --moe-ffn-hidden-size 512 --moe-shared-expert-intermediate-size 1022",
        "etp=1",
        "error crash init",
    ),
    ("TP004", "mlm", f"{_EXPERTS} --moe-ffn-hidden-size 510", "etp=4", "error crash init"),
    ("TP004", "mlm", f"{_EXPERTS} --moe-ffn-hidden-size 510", "etp=2", "fine"),
]


TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    (
        "TP004",
        "mlm",
        f"{TP} 4 --ffn-hidden-size 1022",
        "",
        "found: ffn_hidden_size 1022 over 4 ranks of tensor parallelism",
    ),
    (
        "TP004",
        "mlm",
        f"{_EXPERTS} --moe-ffn-hidden-size 510",
        "etp=4",
        "found: moe_ffn_hidden_size 510 over 4 ranks of expert tensor parallelism",
    ),
    ("TP002", "mlm", "--tp-comm-overlap", "", "found: tp_comm_overlap at tensor_model_parallel_size 1"),
    ("TP002", "mlm", f"--tp-comm-overlap {TP} 2", "", "found: tp_comm_overlap without sequence_parallel"),
    ("TP003", "mlm", "--distribute-saved-activations", "", "found: with tensor_model_parallel_size 1"),
    (
        "TP003",
        "mlm",
        f"--distribute-saved-activations {TP} 2 --sequence-parallel --recompute-granularity full",
        "",
        "found: with sequence_parallel",
    ),
    ("TP001", "mlm", "", "heads=6 tp=4", "| tensor parallelism over 3 ranks | tensor parallelism over 6 ranks"),
    ("TP001", "mlm", "", "heads=7 tp=4 world_size=4", "| no tensor parallelism"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("TP004", "mlm", f"{TP} 4 --ffn-hidden-size 1022", "", ("tensor_model_parallel_size=2",)),
    (
        "TP004",
        "mlm",
        f"{_EXPERTS} --disable-bias-linear --moe-ffn-hidden-size 510",
        "etp=4",
        ("expert_tensor_parallel_size=3",),
    ),
    ("TP002", "mlm", "--tp-comm-overlap", "", ("tp_comm_overlap=false",)),
    ("TP002", "mlm", f"--tp-comm-overlap {TP} 2", "", ("sequence_parallel=true", "tp_comm_overlap=false")),
    ("TP003", "mlm", "--distribute-saved-activations", "", ("distribute_saved_activations=false",)),
    ("TP001", "mlm", "", "heads=64 kv_heads=8 tp=3", ("tensor_model_parallel_size=2", "tensor_model_parallel_size=4")),
    ("TP001", "bridge", "", "heads=7 tp=2", ("model.tensor_model_parallel_size=7",)),  # of KV heads nothing is known
    # 5 and 10 divide the query heads, and neither divides nor is a multiple of 6 KV heads.
    (
        "TP001",
        "mlm",
        "",
        "heads=60 kv_heads=6 tp=8 mcore=0.16.1",
        ("tensor_model_parallel_size=6", "tensor_model_parallel_size=12"),
    ),
    (
        "TP001",
        "mlm",
        "",
        "heads=64 kv_heads=8 tp=5 cp=3 world_size=24",
        ("tensor_model_parallel_size=4", "tensor_model_parallel_size=8"),
    ),
    ("TP001", "mlm", "", "heads=64 kv_heads=8 tp=5 cp=3 world_size=12", ("tensor_model_parallel_size=4",)),
    ("TP001", "mlm", "", "heads=64 kv_heads=8 tp=6 cp=4 world_size=24", ("tensor_model_parallel_size=2",)),
    ("TP001", "mlm", "", "heads=64 kv_heads=8 tp=6 pp=4 world_size=24", ("tensor_model_parallel_size=2",)),
    ("TP001", "mlm", "", "heads=64 kv_heads=8 tp=5 pp=3 world_size=12", ("tensor_model_parallel_size=4",)),
    ("TP001", "mlm", "", "heads=7 tp=4 world_size=4", ("tensor_model_parallel_size=1",)),
]
