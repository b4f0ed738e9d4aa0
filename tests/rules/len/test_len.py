"""LEN rules, as tables."""

from __future__ import annotations

from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

_SIZES = "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 4096"
_FROM_CHECKPOINT = f"python pretrain_gpt.py {_SIZES} --micro-batch-size 1 --use-checkpoint-args \\\n --load x\n"
_HF = "dataset._target_=megatron.bridge.data.builders.direct_hf_sft.DirectHFSFTDatasetConfig"
_LENGTHS = "model.seq_length=16384 dataset.seq_length=8192"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("LEN001", "mlm", "--seq-length 4097 --max-position-embeddings 4096", "", "error crash config"),
    ("LEN001", "mlm", "--seq-length 4096 --max-position-embeddings 4096", "", "fine"),
    (
        "LEN001",
        "mlm",
        "--seq-length 4097 --max-position-embeddings 4096 --position-embedding-type rope",
        "",
        "error crash config",
    ),
    ("LEN001", "mlm", "--max-position-embeddings 4096", "", "needs seq_length"),
    ("LEN001", "mlm", "--max-position-embeddings 4096", "seq_length=null", "fine"),
    ("LEN001", "mlm", "--seq-length 4096", "", "not concerned"),
    ("LEN001", "mlm", _FROM_CHECKPOINT, "", "needs max_position_embeddings"),
    ("LEN001", "slime", "--seq-length 8 --max-position-embeddings 4 --rollout-batch-size 4", "", "not concerned"),
    ("LEN001", "slime", "--seq-length 8 --max-position-embeddings 4 --actor-num-nodes 1", "", "not concerned"),
    ("LEN001", "bridge", "model.seq_length=8 model.max_position_embeddings=4", "", "not concerned"),
    ("LEN002", "mlm", f"{_SIZES} --micro-batch-size 1", "", "error crash config"),
    ("LEN002", "mlm", f"{_SIZES} --micro-batch-size 1 --max-position-embeddings 4096", "", "fine"),
    ("LEN002", "mlm", _FROM_CHECKPOINT, "", "needs max_position_embeddings"),
    ("LEN002", "slime", f"{_SIZES} --micro-batch-size 1 --rollout-batch-size 4", "", "not concerned"),
    # A part of a command line: it lacks other sizes too.
    ("LEN002", "mlm", _SIZES, "", "not concerned"),
    ("LEN002", "bridge", "", "num_layers=4 hidden_size=8 heads=2 seq_length=8 micro_batch_size=1", "not concerned"),
    ("LEN003", "bridge", _LENGTHS, "", "error crash config"),
    ("LEN003", "bridge", "model.seq_length=8192 dataset.sequence_length=4096", "", "error crash config"),
    ("LEN003", "bridge", "dataset.seq_length=8192", "", "fine"),
    ("LEN003", "bridge", "model.seq_length=8192", "", "not concerned"),
    ("LEN003", "bridge", f"{_LENGTHS} dataset._target_=my.package.OwnDatasetProvider", "", "not concerned"),
    ("LEN003", "bridge", f"{_LENGTHS} {_HF}", "", "error crash config"),
    ("LEN003", "bridge", _LENGTHS, "script=scripts/training/run_recipe.py", "warning silent training"),
    ("LEN003", "bridge", _LENGTHS, "script=scripts/training/run_recipe.py bridge=0.4.0", "warning silent training"),
    ("LEN003", "bridge", _LENGTHS, "script=scripts/training/run_recipe.py bridge=0.3.1", "error crash config"),
    ("LEN003", "bridge", _LENGTHS, "script=scripts/training/setup_experiment.py", "warning silent training"),
    ("LEN003", "bridge", _LENGTHS, "script=my_run.py bridge=0.4.0", "error crash config"),
    # The script of that name for benchmarks copies nothing.
    ("LEN003", "bridge", _LENGTHS, "script=scripts/performance/run_recipe.py", "error crash config"),
    ("LEN003", "mlm", "", "seq_length=8 dataset_seq_length=4", "not concerned"),
    (
        "LEN004",
        "bridge",
        f"{_HF} dataset.seq_length=4098",
        "bridge=0.6.0 cp=1 tp=4 sequence_parallel=true",
        "error crash config",
    ),
    (
        "LEN004",
        "bridge",
        f"{_HF} dataset.seq_length=4098",
        "bridge=0.5.1 cp=1 tp=4 sequence_parallel=true",
        "not concerned",
    ),
    ("LEN004", "bridge", f"{_HF} dataset.seq_length=4098", "cp=1 tp=4 sequence_parallel=true", "needs bridge"),
    ("LEN004", "bridge", f"{_HF} dataset.seq_length=4098", "bridge=0.6.0 cp=1 tp=4 sequence_parallel=false", "fine"),
    ("LEN004", "bridge", f"{_HF} dataset.seq_length=4097", "bridge=0.6.0 cp=1 tp=1", "fine"),
    ("LEN004", "bridge", f"{_HF} dataset.seq_length=4098", "bridge=0.6.0 cp=2 tp=1", "error crash config"),
    ("LEN004", "bridge", f"{_HF} dataset.seq_length=4100", "bridge=0.6.0 cp=2 tp=1", "fine"),
    (
        "LEN004",
        "bridge",
        f"{_HF} dataset.seq_length=4100",
        "bridge=0.6.0 cp=2 tp=3 sequence_parallel=true",
        "error crash config",
    ),
    # An evaluation at CP 4 wants multiples of 8.
    (
        "LEN004",
        "bridge",
        f"{_HF} dataset.seq_length=4100 dist.eval_context_parallel_size=4",
        "bridge=0.6.0 cp=2 tp=1",
        "error crash config",
    ),
    (
        "LEN004",
        "bridge",
        f"{_HF} dataset.seq_length=4104 dist.eval_context_parallel_size=4",
        "bridge=0.6.0 cp=2 tp=1",
        "fine",
    ),
    ("LEN004", "bridge", f"{_HF} dataset.seq_length=null", "bridge=0.6.0 cp=2 tp=1", "not concerned"),
    (
        "LEN004",
        "bridge",
        "dataset._target_=GPTDatasetConfig dataset.seq_length=4098",
        "bridge=0.6.0 cp=2",
        "not concerned",
    ),
    ("LEN004", "mlm", "", f"{_HF.replace('dataset._target_', 'dataset_target')} bridge=0.6.0", "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    (
        "LEN001",
        "mlm",
        "--seq-length 131072 --max-position-embeddings 4096",
        "",
        "found: seq_length 131072, max_position_embeddings 4096",
    ),
    ("LEN003", "bridge", _LENGTHS, "", "found: model.seq_length 16384, dataset.seq_length 8192"),
    ("LEN003", "bridge", _LENGTHS, "script=run_recipe.py", "message: training runs at that length"),
    ("LEN003", "bridge", _LENGTHS, "", "message: validation fails"),
    ("LEN004", "bridge", f"{_HF} dataset.seq_length=4098", "bridge=0.6.0 cp=2 tp=1", "wanted: a multiple of 4"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    (
        "LEN001",
        "mlm",
        "--seq-length 131072 --max-position-embeddings 4096",
        "",
        ("max_position_embeddings=131072", "seq_length=4096"),
    ),
    ("LEN003", "bridge", _LENGTHS, "", ("dataset.seq_length=16384", "model.seq_length=8192")),
    (
        "LEN004",
        "bridge",
        f"{_HF} dataset.seq_length=4098",
        "bridge=0.6.0 cp=2 tp=1 sequence_parallel=false calculate_per_token_loss=true average_in_collective=false",
        ("dataset.seq_length=4100 model.seq_length=4100",),
    ),
]
