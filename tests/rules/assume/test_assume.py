"""ASSUME001: assumptions against what the launch says."""

from __future__ import annotations

from hcp.launch.build import build_launch
from hcp.launch.fact import Fact
from hcp.launch.read import read_text
from hcp.rules.engine import check_launch
from hcp.rules.registry import RULES
from hcp.rules.report import Report


def check(text: str, **assumed: object) -> Report:
    facts = {name: Fact(value, "assumed") for name, value in assumed.items()}
    return check_launch(build_launch(read_text(text + "\n", "launch", dialect="bridge"), assumed=facts), RULES)


def found(report: Report) -> list[str]:
    return [finding.rule.id for finding in report.findings]


def test_assume001_an_assumption_against_the_launch_shows_both_values_at_the_launchs_key() -> None:
    report = check("model.context_parallel_size=4\nmodel.seq_length=4096", cp=2, te="2.14")
    assert found(report) == ["ASSUME001"]
    finding = report.findings[0]
    assert finding.problem.found == "cp is 4 in the launch and 2 by assumption"
    assert finding.location is not None and finding.location.line == 1
    assert not report.failed()


def test_assume001_an_assumption_about_an_open_fact_is_no_finding() -> None:
    assert found(check("model.context_parallel_size=4\nmodel.seq_length=4096", te="2.14")) == []
