"""What must hold for each registered rule, by executing its two examples."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hcp.launch.fact import Launch
from hcp.rules.engine import check_launch
from hcp.rules.fixes import apply_edits
from hcp.rules.registry import BY_ID, RULES
from hcp.rules.report import Report
from hcp.rules.rule import Example, Rule

FROZEN = Path(__file__).with_name("published_ids.txt")
LaunchOf = Callable[..., Launch]

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)


def _report(launch_of: LaunchOf, example: Example, *, fixes: bool = False) -> Report:
    return check_launch(launch_of(example.dialect, example.text, example.assume), RULES, fixes=fixes)


@each_rule
def test_the_good_example_has_no_finding_at_all(rule: Rule, launch_of: LaunchOf) -> None:
    report = _report(launch_of, rule.good)
    assert [finding.rule.id for finding in report.findings] == []


@each_rule
def test_the_good_example_is_decided(rule: Rule, launch_of: LaunchOf) -> None:
    undecided = {item.rule.id: item.needs for item in _report(launch_of, rule.good).not_checked}
    assert rule.id not in undecided, f"the good example lacks {undecided[rule.id]}"


@each_rule
def test_the_bad_example_has_this_finding_alone(rule: Rule, launch_of: LaunchOf) -> None:
    report = _report(launch_of, rule.bad)
    assert [finding.rule.id for finding in report.findings] == [rule.id]


@each_rule
def test_a_fix_is_offered_wherever_the_rule_has_one(rule: Rule, launch_of: LaunchOf) -> None:
    finding = _report(launch_of, rule.bad, fixes=True).findings[0]
    if finding.problem.fixes:
        tried = [dict(fix.edits) for fix in finding.problem.fixes]
        assert finding.fixes, f"none of these fixes was found good: {tried}"


@each_rule
def test_every_offered_fix_clears_the_rule_and_adds_no_error(rule: Rule, launch_of: LaunchOf) -> None:
    launch = launch_of(rule.bad.dialect, rule.bad.text, rule.bad.assume)
    for fix in check_launch(launch, RULES).findings[0].fixes:
        fixed = apply_edits(launch, dict(fix.edits))
        assert fixed is not None
        after = check_launch(fixed, RULES, fixes=False)
        assert rule.id not in {finding.rule.id for finding in after.findings}
        assert after.num_findings("error") == 0


@each_rule
def test_the_finding_says_what_happens_what_was_found_and_what_is_wanted(rule: Rule, launch_of: LaunchOf) -> None:
    problem = _report(launch_of, rule.bad).findings[0].problem
    for text in (problem.message, problem.found, problem.wanted, *(fix.effect for fix in problem.fixes)):
        assert text.strip() == text and text and not text.endswith("."), text
    assert problem.facts or problem.location


@each_rule
def test_the_texts_are_there_and_short(rule: Rule) -> None:
    assert 10 < len(rule.title) <= 90 and not rule.title.endswith(".")
    assert 30 < len(rule.why) <= 600 and rule.why.endswith((".", '"'))
    assert rule.source


@each_rule
def test_the_severity_fits_the_effect(rule: Rule) -> None:
    allowed = {
        "error": {"crash", "hang", "silent", "oom"},
        "warning": {"slow", "silent", "crash", "hang", "oom", "note"},
        "info": {"note", "slow"},
    }
    assert rule.effect in allowed[rule.severity]


@each_rule
def test_a_source_is_a_qualified_name_and_a_text_of_one_line_and_never_a_line_number(rule: Rule) -> None:
    for source in rule.source:
        assert source.contains or source.absent
        assert "\n" not in source.contains + source.absent
        assert not re.search(r":\d+$", source.path)


def test_rules_are_ordered_by_id_and_ids_are_unique() -> None:
    ids = [rule.id for rule in RULES]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids) == len(BY_ID)
    assert all(re.fullmatch(r"[A-Z]+\d{3}", rule_id) for rule_id in ids)


def test_a_published_id_is_never_removed_and_a_new_one_is_published() -> None:
    """The file only grows: an id that was shipped keeps its meaning for ever."""
    frozen = FROZEN.read_text().split()
    assert frozen == sorted(set(frozen)), "keep published_ids.txt sorted, one id per line"
    removed, new = set(frozen) - set(BY_ID), set(BY_ID) - set(frozen)
    assert not removed, f"published rules that are gone: {sorted(removed)}"
    assert not new, f"rules to add to {FROZEN.name}: {sorted(new)}"
