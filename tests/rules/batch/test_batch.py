"""BATCH rules, as tables."""

from __future__ import annotations

from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

_ROWS = "--micro-batch-size 2 --context-parallel-size 2"
_EVAL = "validation.eval_global_batch_size"

_WHOLE = "--micro-batch-size 1 --num-layers 2 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et|tL"
_ROUNDS = (
    "--micro-batch-size 1 --num-layers 8 --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2"
)

_PARTS = (
    "--micro-batch-size 1 --num-layers 5 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et|tt|t|tL"
)

VERDICTS: list[Row] = [
    ("BATCH002", "mlm", "--micro-batch-size 1 --eval-micro-batch-size 2", "mcore=0.19.0 world_size=4", "error"),
    ("BATCH002", "mlm", "--micro-batch-size 2 --eval-micro-batch-size 2", "mcore=0.19.0 world_size=4", "fine"),
    # rule, dialect, launch, assumed, verdict
    ("BATCH002", "mlm", "--micro-batch-size 2 --eval-global-batch-size 6", "dp=1 gtp=2 mcore=0.20", "error"),
    ("BATCH002", "mlm", "--micro-batch-size 2 --eval-global-batch-size 6", "dp=1 gtp=2 mcore=0.19.0", "fine"),
    ("BATCH004", "mlm", f"{_ROUNDS} --global-batch-size 16", "world_size=8", "fine"),
    ("BATCH004", "mlm", f"{_ROUNDS} --global-batch-size 12", "world_size=8", "error crash first-forward"),
    # Fewer micro-batches than stages.
    ("BATCH004", "mlm", f"{_ROUNDS} --global-batch-size 4", "world_size=8", "error crash first-forward"),
    ("BATCH004", "mlm", f"{_ROUNDS} --global-batch-size 13", "world_size=8", "fine"),  # BATCH001
    ("BATCH004", "mlm", f"{_ROUNDS} --global-batch-size 12", "", "needs dp"),
    ("BATCH004", "mlm", f"{_WHOLE} --global-batch-size 3", "dp=1", "not concerned"),
    ("BATCH004", "slime", f"{_ROUNDS} --global-batch-size 12", "world_size=8", "not concerned"),
    (
        "BATCH004",
        "mlm",
        f"{_ROUNDS} --global-batch-size 12 --rampup-batch-size 4 4 9",
        "world_size=8 mcore=0.17.1",
        "not concerned",
    ),
    (
        "BATCH004",
        "mlm",
        f"{_ROUNDS} --global-batch-size 12 --rampup-batch-size 4 4 9",
        "world_size=8 mcore=0.18",
        "error crash first-forward",
    ),
    ("BATCH004", "mlm", f"{_PARTS} --global-batch-size 3", "dp=1", "error crash first-forward"),
    ("BATCH004", "mlm", f"{_PARTS} --global-batch-size 4", "dp=1", "fine"),
    (
        "BATCH004",
        "mlm",
        f"{_ROUNDS} --global-batch-size 14 --microbatch-group-size-per-virtual-pipeline-stage 7",
        "world_size=8",
        "not concerned",
    ),
    ("BATCH004", "mlm", f"{_ROWS} --pipeline-model-parallel-size 4 --global-batch-size 12", "dp=2", "not concerned"),
    ("BATCH001", "mlm", "--micro-batch-size 1", "world_size=8", "not concerned"),
    ("BATCH001", "mlm", f"{_ROWS} --global-batch-size 8", "world_size=8", "fine"),
    ("BATCH001", "mlm", f"{_ROWS} --global-batch-size 12", "world_size=8", "error crash init"),
    # Without CP the same batch is one micro-batch too few for eight replicas; with a quarter of them it is whole.
    ("BATCH001", "mlm", "--micro-batch-size 2 --global-batch-size 8", "world_size=8", "error crash init"),
    ("BATCH001", "mlm", "--micro-batch-size 2 --global-batch-size 8 --context-parallel-size 4", "world_size=8", "fine"),
    ("BATCH001", "mlm", f"{_ROWS} --global-batch-size 12", "", "needs dp"),
    ("BATCH001", "mlm", "--context-parallel-size 2 --global-batch-size 8", "world_size=8", "needs micro_batch_size"),
    # Weight shards are no data parallelism, but get sequences of their own.
    ("BATCH001", "mlm", f"{_ROWS} --global-batch-size 16", "world_size=16 weight_shards=2", "fine"),
    ("BATCH001", "mlm", f"{_ROWS} --global-batch-size 8", "world_size=16 weight_shards=2", "error crash init"),
    # The default of the command line leaves them out: 4 sequences for 8 that start a micro-batch.
    ("BATCH001", "mlm", _ROWS, "world_size=16 weight_shards=2", "error crash init"),
    # Since 0.18 a ramp-up is ignored.
    ("BATCH001", "mlm", f"{_ROWS} --global-batch-size 12 --rampup-batch-size 8 8 9", "dp=4 mcore=0.18", "error"),
    (
        "BATCH001",
        "mlm",
        f"{_ROWS} --global-batch-size 12 --rampup-batch-size 8 8 9",
        "dp=4 mcore=0.17.1",
        "not concerned",
    ),
    ("BATCH001", "mlm", f"{_ROWS} --global-batch-size 12 --decrease-batch-size-if-needed", "world_size=8", "fine"),
    (
        "BATCH001",
        "mlm",
        f"{_ROWS} --global-batch-size 7 --decrease-batch-size-if-needed",
        "world_size=8",
        "error crash init",
    ),
    (
        "BATCH001",
        "mlm",
        f"{_ROWS} --global-batch-size 12 --rampup-batch-size 8 8 10",
        "world_size=8",
        "not concerned",
    ),
    (
        "BATCH001",
        "mlm",
        f"{_ROWS} --global-batch-size 12 --step-batch-size-schedule 0:8",
        "world_size=8",
        "not concerned",
    ),
    # slime counts its own batches.
    ("BATCH001", "slime", f"{_ROWS} --global-batch-size 12 --rollout-batch-size 4", "world_size=8", "not concerned"),
    ("BATCH001", "slime", f"{_ROWS} --global-batch-size 12 --actor-num-nodes 4", "world_size=8", "not concerned"),
    ("BATCH001", "bridge", "", "world_size=8", "not concerned"),
    (
        "BATCH001",
        "bridge",
        "train.global_batch_size=12 train.micro_batch_size=2",
        "world_size=8 tp=1 pp=1 cp=2 gtp=1",
        "error crash init",
    ),
    (
        "BATCH001",
        "verl",
        "",
        "world_size=8 tp=1 pp=1 cp=2 dp=4 micro_batch_size=2 global_batch_size=12",
        "not concerned",
    ),
    ("BATCH001", "bridge", "train.global_batch_size=8 train.micro_batch_size=2", "dp=4", "fine"),
    ("BATCH001", "mlm", "--global-batch-size 8", "dp=4 micro_batch_size=null", "needs micro_batch_size"),
    ("BATCH001", "mlm", f"{_ROWS} --global-batch-size 8 --decrease-batch-size-if-needed", "world_size=8", "fine"),
    (
        "BATCH002",
        "slime",
        f"{_ROWS} --eval-global-batch-size 4 --rollout-batch-size 4",
        "world_size=8 mcore=0.18.0",
        "not concerned",
    ),
    (
        "BATCH002",
        "bridge",
        f"{_EVAL}=12 validation.eval_micro_batch_size=2",
        "world_size=8 tp=1 pp=1 cp=2 bridge=0.6.0",
        "error crash config",
    ),
    ("BATCH002", "mlm", f"{_ROWS} --global-batch-size 8", "world_size=8 mcore=0.18.0", "not concerned"),
    (
        "BATCH002",
        "mlm",
        f"{_ROWS} --global-batch-size 8 --eval-global-batch-size 4",
        "world_size=8 mcore=0.18.0",
        "error crash config",
    ),
    (
        "BATCH002",
        "mlm",
        f"{_ROWS} --global-batch-size 8 --eval-global-batch-size 4",
        "world_size=8 mcore=0.17.1",
        "not concerned",
    ),
    ("BATCH002", "mlm", f"{_ROWS} --eval-global-batch-size 4", "world_size=8", "needs mcore"),
    (
        "BATCH002",
        "mlm",
        f"{_ROWS} --global-batch-size 8 --eval-micro-batch-size 4",
        "world_size=8 mcore=0.18.0",
        "error crash config",
    ),
    (
        "BATCH002",
        "mlm",
        f"{_ROWS} --global-batch-size 12 --decrease-batch-size-if-needed",
        "world_size=8 mcore=0.18.0",
        "error crash config",
    ),
    ("BATCH002", "mlm", f"{_ROWS} --eval-micro-batch-size 4", "world_size=8 mcore=0.18.0", "error crash config"),
    (
        "BATCH002",
        "bridge",
        f"{_EVAL}=12 validation.eval_micro_batch_size=2",
        "world_size=8 tp=1 pp=1 cp=2 bridge=0.4.2",
        "not concerned",
    ),
    (
        "BATCH002",
        "bridge",
        f"{_EVAL}=12 validation.eval_micro_batch_size=2",
        "world_size=8 tp=1 pp=1 cp=2 bridge=0.5.0",
        "error crash config",
    ),
    # An evaluation at CP 4 has two replicas where training has four.
    (
        "BATCH002",
        "bridge",
        f"{_EVAL}=12 validation.eval_micro_batch_size=2 dist.eval_context_parallel_size=4",
        "world_size=8 tp=1 pp=1 cp=2 bridge=0.6.0",
        "fine",
    ),
    (
        "BATCH002",
        "bridge",
        f"{_EVAL}=12 validation.eval_micro_batch_size=2 dist.eval_context_parallel_size=4",
        "world_size=8 tp=1 pp=1 cp=2 bridge=0.5.1",
        "error crash config",
    ),
    (
        "BATCH002",
        "bridge",
        f"{_EVAL}=10 validation.eval_micro_batch_size=2 dist.eval_context_parallel_size=3",
        "world_size=8 tp=1 pp=1 cp=2 bridge=0.6.0",
        "fine",
    ),  # LOAD002
    (
        "BATCH002",
        "bridge",
        "train.global_batch_size=4 train.micro_batch_size=2 dist.eval_context_parallel_size=1",
        "world_size=8 tp=1 pp=1 cp=4 bridge=0.6.0 eval_global_batch_size=null eval_micro_batch_size=null",
        "error crash config",
    ),
    # No recipe gives an evaluation a size of its own.
    (
        "BATCH002",
        "bridge",
        "train.global_batch_size=6 train.micro_batch_size=1 dist.eval_context_parallel_size=1",
        "world_size=12 tp=1 pp=1 cp=2 bridge=0.7.0",
        "error crash config",
    ),
]

TEXTS: list[Row] = [
    (
        "BATCH004",
        "mlm",
        f"{_ROUNDS} --global-batch-size 12",
        "world_size=8",
        "found: 6 micro-batches (12 sequences / 2) over 4 stages",
    ),
    # rule, dialect, launch, assumed, what the finding says
    (
        "BATCH001",
        "bridge",
        "train.global_batch_size=9 train.micro_batch_size=2",
        "dp=4 world_size=4",
        "found: data-parallel size 4 (all ranks)",
    ),
    ("BATCH001", "mlm", f"{_ROWS} --global-batch-size 9", "dp=4", "found: data-parallel size 4 (all ranks)"),
    (
        "BATCH001",
        "mlm",
        f"{_ROWS} --global-batch-size 12",
        "world_size=8",
        "found: global_batch_size 12, micro_batch_size 2 x data-parallel size 4 (8 ranks / cp 2)",
    ),
    ("BATCH001", "mlm", f"{_ROWS} --global-batch-size 12", "world_size=8", "wanted: a multiple of 8"),
    (
        "BATCH001",
        "mlm",
        "--micro-batch-size 2 --global-batch-size 9 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2",
        "world_size=8",
        "found: (8 ranks / tp 2 x pp 2)",
    ),
    (
        "BATCH001",
        "mlm",
        "--micro-batch-size 2 --global-batch-size 9",
        "dp=4",
        "found: data-parallel size 4 (all ranks)",
    ),
    (
        "BATCH002",
        "mlm",
        f"{_ROWS} --eval-global-batch-size 12",
        "world_size=8 mcore=0.18.0",
        "found: 12 sequences, micro-batches of 2 on 4 data-parallel ranks",
    ),
]

_AROUND = ("global_batch_size=8", "global_batch_size=16")
FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("BATCH004", "mlm", f"{_ROUNDS} --global-batch-size 12", "world_size=8", _AROUND),
    # A smaller micro-batch changes neither the step nor the layout.
    ("BATCH001", "mlm", f"{_ROWS} --global-batch-size 12", "world_size=8", ("micro_batch_size=1", *_AROUND)),
    # Nothing is smaller than one micro-batch on each of four replicas; 6 sequences are none for each.
    ("BATCH001", "mlm", f"{_ROWS} --global-batch-size 6", "world_size=8", ("global_batch_size=8",)),
    (
        "BATCH002",
        "mlm",
        f"{_ROWS} --eval-global-batch-size 12",
        "world_size=8 mcore=0.18.0",
        ("eval_global_batch_size=8", "eval_global_batch_size=16"),
    ),
    (
        "BATCH002",
        "mlm",
        f"{_ROWS} --eval-global-batch-size 4",
        "world_size=8 mcore=0.18.0",
        ("eval_global_batch_size=8",),
    ),
]
