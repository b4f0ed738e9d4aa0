"""CP rules on sequence lengths."""

from __future__ import annotations

from support.launches import ACTOR, CP
from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("CP001", "mlm", f"{CP} 2 --seq-length 4094", "", "error"),
    ("CP001", "mlm", f"{CP} 2", "", "needs seq_length"),
    ("CP001", "mlm", "--seq-length 4095", "", "not concerned"),
    ("CP001", "bridge-provider", "model.context_parallel_size=2 model.seq_length=4094", "", "warning"),
    ("CP001", "verl", f"{ACTOR}context_parallel_size=3", "", "not concerned"),
    ("CP001", "bridge-provider", "", "cp=6 seq_length=1 sequence_parallel=true", "warning crash first-forward"),
    ("CP001", "bridge", "", "seq_length=null", "needs cp"),
    ("CP001", "bridge", "", "cp=2 seq_length=null", "fine"),
    ("CP002", "mlm", f"{CP} 2 --tensor-model-parallel-size 8 --sequence-parallel --seq-length 4104", "", "error"),
    ("CP002", "mlm", f"{CP} 2 --tensor-model-parallel-size 8 --sequence-parallel --seq-length 4112", "", "fine"),
    ("CP002", "mlm", f"{CP} 2 --tensor-model-parallel-size 8 --seq-length 4104", "", "not concerned"),
    # Rows of --sft are exactly seq_length long (sft_dataset.py); rows of documents too, but PACK006 refuses those.
    ("CP002", "mlm", f"{CP} 2 --sft --tensor-model-parallel-size 6 --sequence-parallel --seq-length 4096", "", "error"),
    ("CP002", "mlm", f"{CP} 2 --sft --tensor-model-parallel-size 4 --sequence-parallel --seq-length 4096", "", "fine"),
    # Without context parallelism too.
    ("CP002", "mlm", "--tensor-model-parallel-size 6 --sequence-parallel --seq-length 4096", "", "error"),
    ("CP002", "mlm", "--tensor-model-parallel-size 4 --sequence-parallel --seq-length 4096", "", "fine"),
    ("CP002", "bridge", "", "tp=1", "not concerned"),
    ("CP002", "bridge", "", "sequence_parallel=true seq_length=4103", "needs cp"),
    ("CP002", "bridge-provider", "", "cp=2 tp=8 sequence_parallel=true seq_length=null", "fine"),
    ("CP002", "verl", "", "cp=2 tp=8", "not concerned"),
    ("CP002", "bridge", "", "cp=1", "not concerned"),
    ("CP002", "bridge-provider", "", "sequence_parallel=true vision=true", "not concerned"),
    ("CP002", "mlm", "", "cp=2 tp=2 sequence_parallel=true seq_length=2", "error crash first-forward"),
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
    ("CP003", "bridge", "", "fp8=hybrid", "needs fp8_recipe"),
    ("CP003", "bridge-provider", "", "cp=2 fp8=hybrid fp8_recipe=mxfp8 seq_length=2 micro_batch_size=null", "fine"),
    ("CP003", "bridge", "", "", "not concerned"),
    ("CP003", "verl", "", "cp=2 fp8=hybrid", "not concerned"),
    ("CP003", "mlm", "", "cp=2 fp8=hybrid", "needs seq_length"),
    ("CP003", "bridge-provider", "", "fp8=hybrid thd=true", "not concerned"),
    ("CP003", "mlm", "", "fp8=hybrid", "not concerned"),
    ("CP003", "mlm", "", "cp=31 fp8=hybrid seq_length=4104 micro_batch_size=1", "fine"),
    ("CP003", "bridge-provider", "", "fp8=hybrid fp8_recipe=tensorwise", "needs cp"),
    ("CP003", "mlm", "", "cp=2 fp8=hybrid seq_length=4096 micro_batch_size=1 fp8_recipe=tensorwise", "fine"),
    ("CP024", "mlm", f"{CP} 2 --seq-length 131072 --dataloader-inter-document-masking", "", "not concerned"),
    ("CP024", "mlm", f"{CP} 2 --seq-length 131072 --no-create-attention-mask-in-dataloader", "", "not concerned"),
    (
        "CP024",
        "bridge",
        "model.context_parallel_size=2 model.seq_length=65536 dataset.skip_getting_attention_mask_from_dataset=false",
        "",
        "warning",
    ),
    ("CP024", "bridge-provider", "", "", "not concerned"),
    ("CP024", "mlm", "", "cp=2 seq_length=32768", "warning oom training"),
    ("CP024", "mlm", "", "", "needs seq_length"),
    ("CP024", "mlm", "--seq-length 98304", "", "warning oom training"),  # the mask is as large without CP
    ("CP024", "mlm", "", "cp=1 seq_length=32767", "fine"),
    ("CP024", "verl", "", "seq_length=98304", "not concerned"),
    # Megatron-LM's examples/inference/run_offline_inference.sh has no dataloader.
    ("CP024", "mlm", "--seq-length 98304", "script=examples/inference/gpt/gpt_dynamic_inference.py", "not concerned"),
    ("CP024", "mlm", "--seq-length 98304", "script=tools/run_text_generation_server.py", "not concerned"),
    ("CP024", "mlm", "", "cp=4 seq_length=null", "fine"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("CP001", "mlm", "", "cp=2 seq_length=1", "argument validation fails"),
    ("CP024", "mlm", "", "cp=2 seq_length=65536", "dense mask of 4"),
    ("CP024", "mlm", "", "cp=2 seq_length=65536", "attention_mask_in_dataloader"),
    (
        "CP024",
        "bridge",
        "",
        "cp=2 seq_length=65536 skip_attention_mask=false",
        "dataset.skip_getting_attention_mask_from_dataset",
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
    ("CP001", "mlm", "", "cp=2 tp=3 seq_length=3", ("seq_length=4",)),
    # No further than the model has positions.
    ("CP001", "mlm", "", "cp=3 seq_length=4096 max_position_embeddings=4098", ("seq_length=4098",)),
    ("CP001", "mlm", "", "cp=3 seq_length=4096 max_position_embeddings=4097", ("seq_length=4092",)),
    ("CP001", "mlm", "", "cp=3 seq_length=5000 max_position_embeddings=4096", ("seq_length=4092",)),
    ("CP001", "mlm", "", "cp=3 seq_length=5 max_position_embeddings=5", ()),
]
