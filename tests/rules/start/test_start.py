"""The rules that stand for functions of upstream: how their guards are named, chosen, ignored and accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.report import Report
from megatron_hcp.launch.comments import acceptances_of
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.rules.registry import RULES, rules_for, selected
from megatron_hcp.rules.start import frameworks
from megatron_hcp.rules.start.functions import ROWS, row_of
from megatron_hcp.validators.outcome import Guard

BOTH = ("--bf16", "--fp16", "--micro-batch-size", "1")


def check(*words: str) -> Report:
    launch = load_launch("", LoadOptions(words=words, assumes=("mcore=0.16.1",)))
    return check_launch(launch, rules_for, fixes=False)


@pytest.mark.parametrize("name", ["START001", "start001", "START", "STARTING"])
def test_start001_a_bare_start_rule_in_ignore_is_refused(name: str) -> None:
    with pytest.raises(HcpError, match="stands for many refusals of upstream; wanted START001/GUARD"):
        selected(None, name)


def test_start001_a_prefix_in_ignore_leaves_the_start_rules_alone() -> None:
    launch = load_launch("", LoadOptions(words=BOTH))
    ids = {rule.id for rule in selected(None, "S")(launch)}
    assert {row.id for row in ROWS} <= ids
    assert not any(rule_id.startswith("SLURM") for rule_id in ids)


def test_start001_one_guard_is_ignored_and_one_is_selected() -> None:
    launch = load_launch("", LoadOptions(words=BOTH))
    (rule,) = selected("START001/validate_args/a-b,START001/c", None)(launch)
    assert (rule.id, rule.only) == ("START001", frozenset({"validate_args/a-b", "c"}))
    (rule,) = selected("START001", "START001/c")(launch)
    assert (rule.only, rule.without) == (None, frozenset({"c"}))


def test_start001_a_guard_is_accepted_by_the_name_that_its_finding_has(tmp_path: Path) -> None:
    (finding,) = check(*BOTH).findings
    file = tmp_path / "run.sh"
    for name, left in ((finding.id, []), ("START001", ["ACCEPT001", finding.id])):
        file.write_text(f"# hcp: ignore={name} measured\ntorchrun pretrain_gpt.py {' '.join(BOTH)}\n")
        report = check_launch(load_launch(str(file), LoadOptions(assumes=("mcore=0.16.1",))), rules_for)
        assert [item.id for item in report.findings] == left
    assert "stands for many refusals" in report.findings[0].problem.message


def test_start001_comments_name_guards_as_findings_print_them() -> None:
    (one, two) = acceptances_of("a: 1  # hcp: ignore=start001/validate_args/fp16-bf16-1a2b,TP001 why not", "x.yaml")
    assert (one.rule, two.rule, one.reason) == ("START001/validate_args/fp16-bf16-1a2b", "TP001", "why not")


def test_start001_a_helpers_guard_belongs_to_its_file() -> None:
    guard = Guard("megatron-lm", "megatron/training/arguments.py", "_helper", "", "", "")
    assert row_of(guard).id == "START001"
    assert row_of(guard._replace(path="megatron/core/quantization/quant_config.py")).id == "START003"


def test_start001_every_start_rule_is_published() -> None:
    rows = (*ROWS, *frameworks.ROWS)
    assert [rule.id for rule in RULES if rule.id.startswith("START")] == sorted(row.id for row in rows)
