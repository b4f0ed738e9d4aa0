"""ENV008: what each variable does, and where it is not judged."""

from __future__ import annotations

import pytest

from support.rules import FixRow, Row, finding, launch, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

CP = "--context-parallel-size 4"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("ENV008", "mlm", CP, "nodes=2 env.NCCL_P2P_DISABLE=1", "warning slow training"),
    ("ENV008", "mlm", CP, "nodes=2 env.NCCL_P2P_DISABLE=0", "fine"),
    ("ENV008", "mlm", CP, "nodes=2 env.NCCL_SHM_DISABLE=1", "warning slow training"),
    ("ENV008", "mlm", CP, "nodes=2 env.NCCL_IB_DISABLE=1", "warning slow training"),
    ("ENV008", "mlm", CP, "nodes=2 env.NCCL_IB_DISABLE=null", "fine"),
    ("ENV008", "mlm", CP, "nodes=2 env.CUDA_LAUNCH_BLOCKING=1", "warning slow training"),
    ("ENV008", "mlm", CP, "nodes=2 env.TORCH_NCCL_BLOCKING_WAIT=1", "warning slow training"),
    ("ENV008", "mlm", CP, "nodes=2 env.NCCL_BLOCKING_WAIT=1", "warning slow training"),
    ("ENV008", "mlm", CP, "nodes=2 env.TORCH_NCCL_BLOCKING_WAIT=0", "fine"),
    ("ENV008", "mlm", CP, "nodes=2 env.TORCH_NCCL_ASYNC_ERROR_HANDLING=0", "warning hang training"),
    ("ENV008", "mlm", CP, "nodes=2 env.NCCL_ASYNC_ERROR_HANDLING=0", "warning hang training"),
    ("ENV008", "mlm", CP, "nodes=2 env.TORCH_NCCL_ASYNC_ERROR_HANDLING=3", "fine"),
    ("ENV008", "mlm", CP, "nodes=2 env.NCCL_DEBUG=INFO", "not concerned"),
    ("ENV008", "mlm", CP, "nodes=1 env.NCCL_P2P_DISABLE=1", "fine"),
    ("ENV008", "mlm", CP, "env.NCCL_P2P_DISABLE=1", "needs nodes"),
    ("ENV008", "mlm", "--context-parallel-size 1", "nodes=2 env.NCCL_P2P_DISABLE=1", "fine"),
    ("ENV008", "mlm", f"export NCCL_IB_DISABLE=1\npython pretrain_gpt.py {CP}\n", "nodes=2", "warning slow training"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    (
        "ENV008",
        "mlm",
        CP,
        "nodes=2 env.NCCL_IB_DISABLE=1 env.CUDA_LAUNCH_BLOCKING=1",
        "found: CUDA_LAUNCH_BLOCKING=1 NCCL_IB_DISABLE=1 with CP 4 on 2 nodes",
    ),
    ("ENV008", "mlm", CP, "nodes=2 env.NCCL_IB_DISABLE=1", "wanted: unset, unless these machines need it"),
    (
        "ENV008",
        "mlm",
        CP,
        "nodes=2 env.TORCH_NCCL_ASYNC_ERROR_HANDLING=0 env.CUDA_LAUNCH_BLOCKING=1",
        "message: a rank that fails leaves the others waiting",
    ),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, fixes
    (
        "ENV008",
        "bridge",
        "model.context_parallel_size=4",
        "nodes=2 env.NCCL_IB_DISABLE=1 env.CUDA_LAUNCH_BLOCKING=1",
        ("env.CUDA_LAUNCH_BLOCKING=null env.NCCL_IB_DISABLE=null",),
    ),
]


@pytest.mark.parametrize("name", ["CUDA_LAUNCH_BLOCKING", "TORCH_NCCL_BLOCKING_WAIT"])
def test_env008_a_variable_that_no_machine_needs_is_to_be_unset(name: str) -> None:
    assert finding("ENV008", launch("mlm", CP, f"nodes=2 env.{name}=1")).problem.wanted == "unset"
