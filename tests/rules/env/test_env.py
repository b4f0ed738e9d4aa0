"""ENV rules: environment variables, as tables."""

from __future__ import annotations

from support.launches import CP
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

FSDP = "dist.use_megatron_fsdp=true "

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("ENV001", "mlm", f"{CP} 2", "", "not concerned"),
    ("ENV001", "mlm", f"{CP} 2", "env.OTHER=1", "needs env.CUDA_DEVICE_MAX_CONNECTIONS"),
    ("ENV001", "mlm", f"{CP} 2", "env.CUDA_DEVICE_MAX_CONNECTIONS=8", "needs arch"),
    ("ENV001", "mlm", f"{CP} 2", "env.CUDA_DEVICE_MAX_CONNECTIONS=8 arch=sm100", "not concerned"),
    (
        "ENV001",
        "mlm",
        f"{CP} 2 --overlap-moe-expert-parallel-comm",
        "env.CUDA_DEVICE_MAX_CONNECTIONS=8 arch=sm90",
        "not concerned",
    ),
    ("ENV001", "mlm", f"{CP} 2 --use-torch-fsdp2", "env.CUDA_DEVICE_MAX_CONNECTIONS=1", "error"),
    ("ENV001", "bridge", FSDP + "model.context_parallel_size=2", "env.CUDA_DEVICE_MAX_CONNECTIONS=1", "error"),
    (
        "ENV001",
        "bridge",
        "model.context_parallel_size=2",
        "env.CUDA_DEVICE_MAX_CONNECTIONS=8 arch=sm90",
        "not concerned",
    ),
    ("ENV003", "mlm", "--apply-query-key-layer-scaling", "", "needs env.NVTE_APPLY_QK_LAYER_SCALING"),
    ("ENV003", "mlm", "--transformer-impl local", "env.NVTE_APPLY_QK_LAYER_SCALING=1", "not concerned"),
]
