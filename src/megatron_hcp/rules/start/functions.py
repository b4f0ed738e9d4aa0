"""A rule for each function of upstream that refuses launches at start-up."""

from __future__ import annotations

from typing import NamedTuple

from megatron_hcp.rules.rule import Example, Problem, Rule, register
from megatron_hcp.rules.upstream import (
    ARGUMENTS,
    MODEL_PARALLEL_CONFIG,
    TRANSFORMER_CONFIG,
    UpstreamFile,
)
from megatron_hcp.rules.view import View
from megatron_hcp.validators.outcome import Guard


class StartRow(NamedTuple):
    """A function of upstream: where it is, a text in it, whose it is in words, and an example that it refuses."""

    id: str
    file: UpstreamFile
    function: str
    contains: str
    versions: str
    whose: str
    good: Example
    bad: Example


ROWS = (
    StartRow(
        "START001",
        ARGUMENTS,
        "validate_args",
        "assert not args.bf16",
        ">=0.12",
        "Megatron-LM's validate_args",
        Example("mlm", "--bf16 --micro-batch-size 1", "mcore=0.16.1"),
        Example("mlm", "--bf16 --fp16 --micro-batch-size 1", "mcore=0.16.1"),
    ),
    StartRow(
        "START002",
        MODEL_PARALLEL_CONFIG,
        "ModelParallelConfig.__post_init__",
        "raise ValueError",
        ">=0.12",
        "megatron-core's ModelParallelConfig",
        Example("bridge-provider", "model.num_layers=2", "mcore=0.16.1"),
        Example("bridge-provider", "model.num_layers=2 model.cpu_offloading=true", "mcore=0.16.1"),
    ),
    StartRow(
        "START003",
        TRANSFORMER_CONFIG,
        "TransformerConfig.__post_init__",
        "raise ValueError",
        ">=0.12",
        "megatron-core's TransformerConfig",
        Example("bridge-provider", "model.num_layers=2", "mcore=0.16.1"),
        Example("bridge-provider", "model.num_layers=2 model.num_moe_experts=0", "mcore=0.16.1"),
    ),
)
"""By id. An id stays with its function for ever."""

_WHY = (
    "Its asserts and raises, and those of the functions that it calls in its file, are read as data and evaluated over "
    "the settings; nothing of it is executed. Each one that refuses is a finding of its own, START…/guard, with "
    "upstream's condition and message. Where another rule cites the same place, that rule speaks instead. A guard that "
    "depends on what hcp can't know is counted as open."
)


def _rule(row: StartRow) -> Rule:
    def check(v: View) -> Problem | None:
        return None

    check.__doc__ = f"{row.whose} accepts the launch.\n\n{_WHY}"
    source = (row.file.says(row.function, row.contains, row.versions),)
    return Rule(row.id, "error", "crash", "config", source, lambda v: False, check, row.good, row.bad, table=__name__)


RULES = {row.id: register(_rule(row)) for row in ROWS}
_BY_FUNCTION = {(row.file.path, row.function): row for row in reversed(ROWS)}
_BY_FILE = {row.file.path: row for row in reversed(ROWS)}
_BY_REPO: dict[str, StartRow] = {row.file.repo: row for row in reversed(ROWS)}


def row_of(guard: Guard) -> StartRow:
    """The row of the function that a guard stands in; of its file, if it is a helper of that function."""
    path = guard.path.removeprefix("src/")
    return _BY_FUNCTION.get((path, guard.function)) or _BY_FILE.get(path) or _BY_REPO.get(guard.repo) or ROWS[0]
