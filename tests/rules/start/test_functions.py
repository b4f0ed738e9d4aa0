"""A row of every START rule besides its examples: a guard that refuses, a launch that is fine, another program's."""

from __future__ import annotations

from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

MODEL = (
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 "
    "--micro-batch-size 1"
)
ONE = "mcore=0.17.0 world_size=1"
TWO = "mcore=0.17.0 world_size=2"
ERROR = "error crash config"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("START001", "mlm", f"{MODEL} --lr 1e-4 --min-lr 1e-3", ONE, ERROR),
    ("START001", "mlm", f"{MODEL} --lr 1e-3 --min-lr 1e-4", ONE, "all:"),
    ("START001", "mlm", f"{MODEL} --overlap-param-gather", ONE, ERROR),
    ("START001", "bridge", "optimizer.lr=1e-4 optimizer.min_lr=1e-3", "", "not concerned"),
    ("START002", "mlm", f"{MODEL} --defer-embedding-wgrad-compute", ONE, ERROR),
    ("START002", "mlm", f"{MODEL} --pipeline-model-parallel-size 2", TWO, "all:"),
    ("START002", "bridge", "model.defer_embedding_wgrad_compute=true", "", "not concerned"),
    ("START003", "mlm", f"{MODEL} --cpu-offloading-num-layers 2 --pipeline-model-parallel-size 2", TWO, ERROR),
    ("START003", "mlm", f"{MODEL} --cpu-offloading-num-layers 2", ONE, "all:"),
    ("START003", "bridge", "model.cpu_offloading_num_layers=9 model.num_layers=4", "", "not concerned"),
    ("START004", "mlm", f"{MODEL} --multi-latent-attention --no-rope-fusion --attention-output-gate", ONE, ERROR),
    ("START004", "mlm", f"{MODEL} --multi-latent-attention --no-rope-fusion", ONE, "all:"),
    ("START004", "mlm", f"{MODEL} --no-rope-fusion --attention-output-gate", ONE, "not concerned"),
    ("START005", "mlm", f"{MODEL} --squared-relu --swiglu", ONE, ERROR),
    ("START005", "mlm", f"{MODEL} --swiglu", ONE, "all:"),
    ("START005", "bridge", "model.gated_linear_unit=true", "", "not concerned"),
    ("START006", "mlm", f"{MODEL} --sharp-enabled-group dp_replica", ONE, ERROR),
    ("START006", "mlm", f"{MODEL} --use-sharp --sharp-enabled-group dp_replica", ONE, ERROR),
    ("START006", "mlm", f"{MODEL} --use-sharp --sharp-enabled-group dp", ONE, "all:"),
    ("START006", "bridge", "dist.sharp_enabled_group=dp", "", "not concerned"),
    ("START007", "mlm", f"{MODEL} --ddp-num-buckets 2 --ddp-bucket-size 5", ONE, ERROR),
    ("START007", "mlm", f"{MODEL} --ddp-bucket-size 5", ONE, "all:"),
    ("START007", "bridge", "ddp.average_in_collective=true model.calculate_per_token_loss=true", "", "not concerned"),
    ("START008", "mlm", f"{MODEL} --use-precision-aware-optimizer", ONE, ERROR),
    ("START008", "mlm", f"{MODEL} --use-precision-aware-optimizer --use-distributed-optimizer --bf16", ONE, "all:"),
    ("START008", "bridge", "optimizer.use_precision_aware_optimizer=true", "", "not concerned"),
    ("START034", "mlm", f"{MODEL} --softmax-type off-by-one", f"{ONE} te=2.7.0", ERROR),
    ("START034", "mlm", f"{MODEL} --softmax-type off-by-one", f"{ONE} te=2.8.0", "all:"),
    ("START034", "mlm", f"{MODEL} --softmax-type off-by-one --transformer-impl local", f"{ONE} te=2.7.0", "all:"),
    ("START034", "mlm", f"{MODEL} --softmax-type off-by-one --spec a b", f"{ONE} te=2.7.0", "all:"),
    ("START034", "mlm", f"{MODEL} --group-query-attention --num-query-groups 3", ONE, ERROR),
    ("START034", "mlm", f"{MODEL} --group-query-attention --num-query-groups 2", ONE, "all:"),
    ("START034", "mlm", f"{MODEL} --group-query-attention --num-query-groups 3 --spec a b", ONE, "all:"),
    ("START034", "bridge", "model.softmax_type=off-by-one", "te=2.7.0", "not concerned"),
]
