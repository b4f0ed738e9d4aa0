"""Dynamic context parallelism: splitting, scheduling and normalization, as arithmetic on lengths and rank counts."""

from megatron_hcp.dcp.cost import ASSUMED_COST, DEFAULT_COST, Cost, parse_cost
from megatron_hcp.dcp.groups import TARGETS, is_usable, usable_sizes
from megatron_hcp.dcp.plan import (
    Group,
    Metrics,
    MicroBatch,
    Plan,
    group_time,
    measure,
    padded_length,
    smallest_size,
)
from megatron_hcp.dcp.schedule import plan_micro_batches
from megatron_hcp.dcp.setup import LAYOUTS, Memory, Setup
from megatron_hcp.dcp.split import Split, split_pr5869

__all__ = [
    "ASSUMED_COST",
    "DEFAULT_COST", "LAYOUTS", "TARGETS", "Cost", "Group", "Memory", "Metrics", "MicroBatch",
    "Plan", "Setup", "Split", "group_time", "is_usable", "measure", "padded_length", "parse_cost",
    "plan_micro_batches", "smallest_size", "split_pr5869", "usable_sizes",
]  # fmt: skip
