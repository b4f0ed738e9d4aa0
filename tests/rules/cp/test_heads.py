"""CP rules, as tables."""

from __future__ import annotations

import pytest

from megatron_hcp.rules.cp.view import nearest_divisors
from support.launches import KV, TP
from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("CP007", "bridge", "", "cp_comm_type=a2a,a2a+p2p", "not concerned"),
    (
        "CP007",
        "bridge-provider",
        "",
        "cp=2 cp_comm_type=a2a heads=6 num_query_groups=8 tp=2",
        "error crash first-forward",
    ),
    ("CP007", "verl", "", "", "not concerned"),
    ("CP007", "mlm", "", "cp=4 cp_comm_type=p2p heads=6 kv_heads=6", "not concerned"),
    ("CP007", "verl", "", "cp=null cp_comm_type=a2a", "needs cp"),
    ("CP008", "mlm", f"{TP} 4 --num-attention-heads 32 {KV} 8", "tp=2 kv_heads=1 mcore=0.16", "fine"),
    ("CP008", "mlm", "", "", "not concerned"),
    ("CP008", "mlm", "", "tp=3 group_query_attention=true mcore=0.15", "error crash config"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("CP008", "mlm", "", "heads=4 kv_heads=4 tp=3", "| tensor parallelism over 2 ranks | tensor parallelism over 4"),
    (
        "CP007",
        "mlm",
        "",
        "cp=8 cp_comm_type=a2a heads=32 kv_heads=8 tp=4",
        "| a ring: heads are not split | all-to-all over 2 ranks inside, a ring of 4 outside",
    ),
    (
        "CP007",
        "mlm",
        "torchrun pretrain_gpt.py --num-layers 2 --tensor-parallel-num-weight-shards $UNKNOWN\n",
        "cp=8 cp_comm_type=a2a heads=4 kv_heads=4 tp=1 nvlink_domain=4",  # taken for one shard, where it is unknown
        "| a ring: heads are not split | all-to-all over 4 ranks inside, a ring of 2 outside",
    ),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    (
        "CP007",
        "mlm",
        "",
        "cp=8 cp_comm_type=a2a heads=32 kv_heads=8 tp=4",
        ("cp_comm_type=p2p", "cp_comm_type=a2a+p2p hierarchical_context_parallel_sizes=2 4"),
    ),
    ("CP007", "mlm", "", "cp=8 cp_comm_type=a2a heads=32 kv_heads=4 tp=4", ("cp_comm_type=p2p",)),
    (
        "CP007",
        "bridge",
        "",
        "cp=16 cp_comm_type=a2a heads=8 kv_heads=8 tp=1",  # a domain of 8 GPUs, all for the inner level
        ("model.cp_comm_type=p2p", "model.cp_comm_type=a2a+p2p model.hierarchical_context_parallel_sizes=[8,2]"),
    ),
    (
        "CP007",
        "mlm",
        "",
        "cp=8 cp_comm_type=a2a,p2p num_layers=2 heads=32 kv_heads=8 tp=4",
        (
            "cp_comm_type=p2p p2p",
            "cp_comm_type=a2a+p2p p2p hierarchical_context_parallel_sizes=2 4",
        ),
    ),
    ("CP008", "mlm", "", "heads=12 kv_heads=6 tp=4", ("tensor_model_parallel_size=3", "tensor_model_parallel_size=6")),
    ("CP008", "mlm", "", "heads=64 kv_heads=8 tp=5 cp=3 world_size=12", ("tensor_model_parallel_size=4",)),
    ("CP008", "mlm", "", "heads=64 kv_heads=8 tp=6 cp=4 world_size=24", ("tensor_model_parallel_size=2",)),
    ("CP008", "mlm", "", "heads=64 kv_heads=8 tp=6 pp=4 world_size=24", ("tensor_model_parallel_size=2",)),
    ("CP008", "mlm", "", "heads=64 kv_heads=8 tp=5 pp=3 world_size=12", ("tensor_model_parallel_size=4",)),
    (
        "CP008",
        "bridge",
        "",
        "heads=4 kv_heads=4 tp=3 world_size=4",
        ("model.tensor_model_parallel_size=2", "model.tensor_model_parallel_size=4"),
    ),
    ("CP008", "mlm", "", "kv_heads=6 tp=4", ("tensor_model_parallel_size=3", "tensor_model_parallel_size=6")),
    # Before 0.16 no two ranks share a KV head; from then on they do.
    ("CP008", "mlm", "", "heads=32 kv_heads=4 tp=16 mcore=0.15", ("tensor_model_parallel_size=4",)),
    (
        "CP008",
        "mlm",
        "",
        "heads=48 kv_heads=4 tp=6 mcore=0.16",
        ("tensor_model_parallel_size=4", "tensor_model_parallel_size=8"),
    ),
]


@pytest.mark.parametrize(
    ("number", "size", "near"),
    [(64, 3, [2, 4]), (8, 4, [2, 8]), (6, 1, [2]), (5, 5, [1]), (7, 4, [7]), (1, 1, []), (0, 4, []), (6, 9, [6])],
)
def test_cp008_is_offered_the_nearest_divisors(number: int, size: int, near: list[int]) -> None:
    assert nearest_divisors(number, size) == near


def test_cp008_is_offered_divisors_that_fit() -> None:
    assert nearest_divisors(24, 5, lambda other: other != 4) == [3, 6]
