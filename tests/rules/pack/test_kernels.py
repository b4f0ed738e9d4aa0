"""PACK rules on kernels for packed data, by version."""

from __future__ import annotations

from support.launches import ACTOR, CP, PACKED
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("PACK004", "bridge", f"{PACKED}model.context_parallel_size=2", "mcore=0.18", "fine"),
    ("PACK004", "bridge", f"{PACKED}model.context_parallel_size=2", "mcore=0.17 bridge=0.5", "fine"),
    (
        "PACK005",
        "bridge",
        f"{PACKED}model.attention_backend=flash dataset.offline_packing_specs.pad_seq_to_mult=4",
        "te=2.18",
        "needs flash_attn",
    ),
    ("PACK008", "mlm", f"{CP} 2 --sft --position-embedding-type rope", "te=1.11", "error"),
    ("PACK008", "mlm", f"{CP} 2 --sft", "te=1.11", "not concerned"),
    ("PACK010", "verl", f"{ACTOR}context_parallel_size=2 " + f"{ACTOR}use_remove_padding=False", "verl=0.7.1", "error"),
    (
        "PACK010",
        "verl",
        f"{ACTOR}context_parallel_size=2 actor_rollout_ref.model.use_remove_padding=False",
        "verl=0.7.1",
        "fine",
    ),
]
