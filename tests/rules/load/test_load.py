"""LOAD rules: checkpoints and evaluation with other sizes, as tables."""

from __future__ import annotations

from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

EVAL = (
    "model.context_parallel_size=4 dist.eval_context_parallel_size=2 model.cp_comm_type=p2p model.seq_length=4096 "
    "model.pipeline_model_parallel_size=1 "
)

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("LOAD002", "bridge", EVAL + "dist.use_decentralized_pg=false", "", "warning"),
    (
        "LOAD002",
        "bridge",
        EVAL + "dist.use_decentralized_pg=true model.tensor_model_parallel_size=3",
        "world_size=16",
        "error",
    ),
]
