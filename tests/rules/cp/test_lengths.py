"""CP rules on sequence lengths."""

from __future__ import annotations

from support.launches import ACTOR, CP
from support.rules import FixRow, Row, test_fixes, test_verdict

__all__ = ["test_fixes", "test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("CP001", "mlm", f"{CP} 2 --seq-length 4094", "", "error"),
    ("CP001", "mlm", f"{CP} 2", "", "needs seq_length"),
    ("CP001", "mlm", "--seq-length 4095", "", "not concerned"),
    ("CP001", "bridge-provider", "model.context_parallel_size=2 model.seq_length=4094", "", "warning"),
    ("CP001", "verl", f"{ACTOR}context_parallel_size=3", "", "not concerned"),
    ("CP002", "mlm", f"{CP} 2 --tensor-model-parallel-size 8 --sequence-parallel --seq-length 4104", "", "error"),
    ("CP002", "mlm", f"{CP} 2 --tensor-model-parallel-size 8 --sequence-parallel --seq-length 4112", "", "fine"),
    ("CP002", "mlm", f"{CP} 2 --tensor-model-parallel-size 8 --seq-length 4104", "", "not concerned"),
    (
        "CP002",
        "mlm",
        f"{CP} 2 --tensor-model-parallel-size 8 --sequence-parallel --seq-length 4104 --sft",
        "",
        "not concerned",
    ),
    (
        "CP003",
        "mlm",
        f"{CP} 2 --fp8-format hybrid --fp8-recipe mxfp8 --seq-length 4128 --micro-batch-size 1",
        "",
        "error",
    ),
    (
        "CP003",
        "mlm",
        f"{CP} 2 --fp8-format hybrid --fp8-recipe mxfp8 --seq-length 4128 --micro-batch-size 2",
        "",
        "fine",
    ),
    (
        "CP003",
        "mlm",
        f"{CP} 2 --fp8-format hybrid --fp8-recipe delayed --seq-length 4128 --micro-batch-size 1",
        "",
        "fine",
    ),
    ("CP003", "mlm", f"{CP} 2 --fp8-format hybrid --seq-length 4128", "", "needs micro_batch_size"),
    ("CP024", "mlm", f"{CP} 2 --seq-length 131072 --dataloader-inter-document-masking", "", "not concerned"),
    ("CP024", "mlm", f"{CP} 2 --seq-length 131072 --no-create-attention-mask-in-dataloader", "", "not concerned"),
    (
        "CP024",
        "bridge",
        "model.context_parallel_size=2 model.seq_length=65536 dataset.skip_getting_attention_mask_from_dataset=false",
        "",
        "warning",
    ),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    (
        "CP001",
        "bridge",
        "model.context_parallel_size=4 model.seq_length=5001 dataset.seq_length=5001 "
        "model.sequence_parallel=true model.tensor_model_parallel_size=3 model.num_attention_heads=6",
        "",
        ("model.seq_length=5016 dataset.seq_length=5016",),  # 5016 = 209 x lcm(8, 12)
    ),
]
