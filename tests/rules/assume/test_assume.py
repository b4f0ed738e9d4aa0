"""ASSUME001: assumptions against what the launch says."""

from __future__ import annotations

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.report import Report
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Fact
from megatron_hcp.launch.readers.target import read_text
from megatron_hcp.rules.registry import RULES
from support.launches import CP, TP
from support.rules import Row, test_text, test_verdict

__all__ = ["test_text", "test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("ASSUME001", "mlm", f"{CP} 2", "", "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("ASSUME001", "mlm", f"{CP} 2 {TP} 2", "cp=4 tp=4", "by assumption, and 1 more"),
    ("ASSUME001", "mlm", f"{CP} 2", "cp=4", "cp is 2 in the launch and 4 by assumption |"),
]


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
