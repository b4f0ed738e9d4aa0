"""ACCEPT001, and how the engine honors accepted findings."""

from __future__ import annotations

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.report import Report
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Fact
from megatron_hcp.launch.readers.target import read_text
from megatron_hcp.rules.registry import BY_ID, RULES
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]


SHORT = "model.context_parallel_size=3\nmodel.seq_length=4096"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("ACCEPT001", "bridge", "model.seq_length=4096", "", "not concerned"),
]


def check(text: str, rules: tuple = RULES, **assumed: object) -> Report:
    facts = {name: Fact(value, "assumed") for name, value in assumed.items()}
    return check_launch(build_launch(read_text(text + "\n", "launch", dialect="bridge"), assumed=facts), rules)


def found(report: Report) -> list[str]:
    return [finding.rule.id for finding in report.findings]


def test_accept001_a_finding_accepted_with_a_reason_is_no_finding_and_the_comment_is_used() -> None:
    report = check(SHORT.replace("=4096", "=4096  # hcp: ignore=CP001 padded by our loader"))
    assert found(report) == []
    assert [finding.rule.id for finding in report.accepted] == ["CP001"]


def test_accept001_the_comment_may_stand_on_the_line_above() -> None:
    report = check("model.context_parallel_size=3\n# hcp: ignore=CP001 padded by our loader\nmodel.seq_length=4096")
    assert found(report) == []


def test_accept001_without_a_reason_nothing_is_accepted() -> None:
    report = check(SHORT.replace("=4096", "=4096  # hcp: ignore=CP001"))
    assert found(report) == ["ACCEPT001", "CP001"]
    assert "no reason" in report.findings[0].problem.message


def test_accept001_an_unknown_rule_is_a_finding_at_the_comment() -> None:
    report = check(SHORT.replace("=3", "=4") + "  # hcp: ignore=CP999 because")
    assert found(report) == ["ACCEPT001"]
    place = report.findings[0].location
    assert place is not None
    assert (place.line, place.file) == (2, "launch")


def test_accept001_a_comment_far_from_the_key_is_unused() -> None:
    text = "# hcp: ignore=CP001 padded by our loader\nmodel.bf16=true\nmodel.hidden_size=64\n" + SHORT
    assert found(check(text)) == ["ACCEPT001", "CP001"]


def test_accept001_a_comment_for_a_rule_that_was_not_run_or_not_decided_is_not_called_unused() -> None:
    text = "model.context_parallel_size=3  # hcp: ignore=CP001 padded by our loader"
    report = check(text)
    assert "ACCEPT001" not in found(report)
    assert "CP001" in {item.rule.id for item in report.not_checked}
    without = tuple(rule for rule in RULES if rule.id != "CP001")
    assert found(check(text + "\nmodel.seq_length=4096", without)) == []


@pytest.mark.parametrize("reason", ["", "because"])
def test_accept001_the_comment_about_comments_is_not_accepted_by_a_comment(reason: str) -> None:
    report = check(SHORT.replace("=3", "=4") + f"  # hcp: ignore=ACCEPT001 {reason}")
    assert found(report) in (["ACCEPT001"], [])
    assert BY_ID["ACCEPT001"].last


COMMAND = "torchrun pretrain_gpt.py \\\n  --context-parallel-size 2 \\\n  --seq-length 4097 \\\n  --bf16\n"


@pytest.mark.parametrize(
    ("text", "is_accepted"),
    [
        ("# hcp: ignore=CP001 ours\n" + COMMAND, True),
        ("# hcp: ignore=CP001 ours\n# another comment\n" + COMMAND, True),
        ("# hcp: ignore=CP001 ours\r\n" + COMMAND.replace("\n", "\r\n"), True),
        ("# hcp: ignore=CP001 ours\n\n" + COMMAND, False),
        ("# hcp: ignore=CP001 ours\necho \\\n  a\n" + COMMAND, False),
        ("# hcp: ignore=CP001 ours\nSIZE=1\n" + COMMAND, False),
        ("echo # hcp: ignore=CP001 ours\n" + COMMAND, False),
    ],
)
def test_accept001_a_comment_above_a_command_counts_for_all_its_lines(text: str, is_accepted: bool) -> None:
    report = check_launch(build_launch(read_text(text, "run.sh")), RULES)
    assert ("CP001" in {finding.id for finding in report.accepted}) == is_accepted
