"""SWIFT rules: what ms-swift's Megatron arguments are asked for, as tables."""

from __future__ import annotations

from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

JOB = "--model x --tensor_model_parallel_size 2 --context_parallel_size 2 --micro_batch_size 2"
SIXTEEN = "nodes=2 gpus_per_node=8"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("SWIFT001", "ms-swift", f"{JOB} --global_batch_size 16", SIXTEEN, "all:"),  # DP 4 x 2
    ("SWIFT001", "ms-swift", f"{JOB} --global_batch_size 12", SIXTEEN, "all: SWIFT001"),
    ("SWIFT001", "ms-swift", f"{JOB} --global_batch_size 4", SIXTEEN, "all: SWIFT001"),  # no micro-batch at all
    ("SWIFT001", "ms-swift", f"{JOB} --global_batch_size 12 --pipeline_model_parallel_size 2", SIXTEEN, "all:"),
    ("SWIFT001", "ms-swift", JOB, SIXTEEN, "all:"),  # 16 by default
    ("SWIFT001", "ms-swift", JOB, "nodes=3 gpus_per_node=8", "error crash init"),  # DP 6 x 2
    ("SWIFT001", "ms-swift", JOB, "nodes=3 gpus_per_node=1", "fine"),  # TOPO003
    ("SWIFT001", "ms-swift", JOB, "", "needs world_size"),
    ("SWIFT001", "mlm", "--micro-batch-size 2 --global-batch-size 3", SIXTEEN, "not concerned"),
    ("SWIFT002", "ms-swift", "--model x --use_megatron_fsdp true", "", "all: SWIFT002"),
    ("SWIFT002", "ms-swift", "--model x --use_megatron_fsdp true", "env.CUDA_DEVICE_MAX_CONNECTIONS=1", "error crash"),
    ("SWIFT002", "ms-swift", "--model x --use_megatron_fsdp true", "env.CUDA_DEVICE_MAX_CONNECTIONS=32", "fine"),
    ("SWIFT002", "ms-swift", "--model x --use_megatron_fsdp false", "", "not concerned"),
    ("SWIFT002", "mlm", "--use-megatron-fsdp", "", "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("SWIFT001", "ms-swift", f"{JOB} --global_batch_size 12", SIXTEEN, "found: 12 at DP 4 x micro-batch 2"),
    ("SWIFT002", "ms-swift", "--model x --use_megatron_fsdp true", "", "found: CUDA_DEVICE_MAX_CONNECTIONS not set"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("SWIFT001", "ms-swift", f"{JOB} --global_batch_size 12", SIXTEEN, ("micro_batch_size=1", "global_batch_size=16")),
]
