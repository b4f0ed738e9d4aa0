"""Megatron-LM's refusals: which rules own them, and which are out of scope."""

from __future__ import annotations

from agree.compare import Tables

TABLES = Tables(
    owners=(
        (r"world size \(\d+\) is not divisible by total_model_size", ("PAR001",)),
        (r"context_parallel_size == prod\(args\.hierarchical", ("HCP002",)),
    ),
    unrelated=(),
    beyond={},
)
