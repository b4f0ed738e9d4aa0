"""DCP rules, as tables."""

from __future__ import annotations

from support.launches import BY_COUNT, VERL
from support.rules import Row, test_text, test_verdict

__all__ = ["test_text", "test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("DCP023", "bridge", "", "", "not concerned"),
    ("DCP023", "verl", f"{VERL}actor_rollout_ref.actor.use_dynamic_bsz=True", "verl=0.8", "fine"),
    ("DCP023", "verl", f"{VERL}actor_rollout_ref.actor.use_dynamic_bsz=True", "verl=0.9", "fine"),
    ("DCP023", "verl", f"{VERL}actor_rollout_ref.actor.ppo_max_token_len_per_gpu=9", "verl=0.9", "info note never"),
    ("DCP023", "verl", f"{VERL}{BY_COUNT}2", "verl=0.9", "info note never"),
    ("DCP023", "verl", f"{VERL}{BY_COUNT}1", "verl=0.9", "fine"),
    (
        "DCP025",
        "verl",
        "",
        "dynamic_context_parallel=true micro_batch_size=8 verl=0.8.0 use_dynamic_bsz=false",
        "warning hang training",
    ),
    (
        "DCP025",
        "verl",
        f"{VERL}{BY_COUNT}7",
        "verl=0.8.0",
        "error silent never",
    ),
    ("DCP025", "verl", "", "dynamic_context_parallel=true verl=0.7", "fine"),
    (
        "DCP025",
        "verl",
        f"{VERL}{BY_COUNT}9",
        "verl=0.8.0 world_size=9",
        "error hang training",
    ),
    (
        "DCP025",
        "verl",
        "engine=megatron engine.dynamic_context_parallel=True engine.max_seqlen_per_dp_cp_rank=4096",
        "verl=0.8.0 world_size=3",
        "warning hang training",
    ),
    ("DCP025", "verl", f"{VERL}{BY_COUNT}7", "verl=0.9", "fine"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("DCP025", "verl", "", "dynamic_context_parallel=true verl=0.8", "micro-batches with"),
    ("DCP025", "verl", "", "dynamic_context_parallel=true verl=0.8", "any size by count"),
    (
        "DCP025",
        "verl",
        f"{VERL}{BY_COUNT}7",
        "verl=0.8.0",
        "7 sequences over 8 ranks by count",
    ),
]
