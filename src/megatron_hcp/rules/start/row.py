"""What a START rule is made of: a function of upstream, whose guards it stands for."""

from __future__ import annotations

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.rules.rule import Example, Problem, Rule, register
from megatron_hcp.rules.upstream import UpstreamFile
from megatron_hcp.rules.view import View


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


_WHY = (
    "Its asserts and raises, and those of the functions that it calls in its file, are read as data and evaluated over "
    "the settings; nothing of it is executed. Each one that refuses is a finding of its own, START…/guard, with "
    "upstream's condition and message. Where another rule cites the same place, that rule speaks instead. A guard that "
    "depends on what hcp can't know is counted as open."
)


def rule_of(row: StartRow, module: str) -> Rule:
    """The rule of a row, registered as one of the module's."""

    def check(v: View) -> Problem | None:
        return None

    check.__doc__ = f"{row.whose} accepts the launch.\n\n{_WHY}"
    source = (row.file.says(row.function, row.contains, row.versions),)
    rule = Rule(row.id, "error", "crash", "config", source, lambda v: False, check, row.good, row.bad, table=module)
    return register(rule)
