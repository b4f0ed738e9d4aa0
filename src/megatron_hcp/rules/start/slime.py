"""A rule for slime's argument checks, and one for miles'."""

from __future__ import annotations

from megatron_hcp.rules.rule import Example
from megatron_hcp.rules.start.row import StartRow, rule_of
from megatron_hcp.rules.upstream import MILES_ARGUMENTS, SLIME_ARGUMENTS

_JOB = (
    "--actor-num-nodes 1 --actor-num-gpus-per-node 8 --rollout-batch-size 32 --num-rollout 10 --num-layers 2 "
    "--hidden-size 64 --num-attention-heads 4 --micro-batch-size 1"
)


def _example(more: str, stated: str) -> Example:
    return Example("slime", f"{_JOB} {more}", stated)


ROWS = (
    StartRow(
        "START027",
        SLIME_ARGUMENTS,
        "slime_validate_args",
        "over_sampling_batch_size",
        ">=0.2",
        "slime's slime_validate_args",
        _example("--over-sampling-batch-size 64", "slime=0.3.1"),
        _example("--over-sampling-batch-size 16", "slime=0.3.1"),
    ),
    StartRow(
        "START028",
        MILES_ARGUMENTS,
        "miles_validate_args",
        "over_sampling_batch_size",
        ">=0.1",
        "miles' miles_validate_args",
        _example("--over-sampling-batch-size 64", "miles=0.1.0"),
        _example("--over-sampling-batch-size 16", "miles=0.1.0"),
    ),
)
RULES = {row.id: rule_of(row, __name__) for row in ROWS}
