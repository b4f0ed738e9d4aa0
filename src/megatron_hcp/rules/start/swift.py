"""A rule for ms-swift's checks of the arguments of all its commands, and one for those of `megatron`."""

from __future__ import annotations

from megatron_hcp.rules.rule import Example
from megatron_hcp.rules.start.row import StartRow, rule_of
from megatron_hcp.rules.upstream import MS_SWIFT_ARGUMENTS, MS_SWIFT_BASE_ARGUMENTS

_JOB = "--model Qwen/Qwen3-8B --dataset data"


def _example(more: str) -> Example:
    return Example("ms-swift", f"{_JOB} {more}", "ms_swift=4.5.2 world_size=8")


ROWS = (
    StartRow(
        "START029",
        MS_SWIFT_BASE_ARGUMENTS,
        "BaseArguments._init_lazy_tokenize",
        "Packing and lazy_tokenize are incompatible.",
        ">=4.0",
        "ms-swift's arguments of all commands",
        _example("--packing true --lazy_tokenize false"),
        _example("--packing true --lazy_tokenize true"),
    ),
    StartRow(
        "START030",
        MS_SWIFT_ARGUMENTS,
        "MegatronArguments.__post_init__",
        "recompute method is not yet supported for selective recomputing granularity",
        ">=4.0",
        "ms-swift's MegatronArguments",
        _example("--start_weight_decay 0.1 --end_weight_decay 0.2 --weight_decay_incr_style linear"),
        _example("--start_weight_decay 0.1 --weight_decay_incr_style constant"),
    ),
)
RULES = {row.id: rule_of(row, __name__) for row in ROWS}
