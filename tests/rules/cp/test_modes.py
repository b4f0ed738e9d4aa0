"""CP rules on other modes of a run: determinism, batch invariance, FSDP, token prediction."""

from __future__ import annotations

from support.launches import CP
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

TREE = "env.NCCL_ALGO=Tree env.NVTE_ALLOW_NONDETERMINISTIC_ALGO=0"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("CP017", "mlm", "--deterministic-mode", "mcore=0.16", "needs env.NVTE_ALLOW_NONDETERMINISTIC_ALGO"),
    ("CP017", "mlm", "--deterministic-mode", "mcore=0.19", "fine"),
    ("CP017", "mlm", "--deterministic-mode", "mcore=0.19 env.NCCL_ALGO=Tree", "error"),
    ("CP017", "mlm", "--deterministic-mode", "mcore=0.18 " + TREE, "fine"),
    ("CP017", "bridge", "model.deterministic_mode=true", TREE, "fine"),
    ("CP018", "mlm", f"{CP} 2 --batch-invariant-mode", "mcore=0.18", "fine"),
    ("CP018", "mlm", f"{CP} 2 --batch-invariant-mode", "", "needs mcore"),
    ("CP020", "mlm", f"{CP} 2 --pipeline-model-parallel-comm-backend ucc", "arch=sm90", "error"),
    ("CP020", "mlm", f"{CP} 2 --pipeline-model-parallel-comm-backend ucc", "arch=sm100", "fine"),
    ("CP020", "bridge", "model.context_parallel_size=2 model.pipeline_model_parallel_comm_backend=ucc", "", "fine"),
    ("CP026", "mlm", f"{CP} 2 --mtp-num-layers 1", "", "needs mcore"),
]
