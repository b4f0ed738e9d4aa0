"""Truth tables over rules, and what must hold for the examples of each: what every folder of tests/rules/ shares.

A module below tests/rules/<family>/ imports the tests that it needs and names its tables as they say; conftest.py
parametrizes them by rule, so that its id stands in every test id, and the rows of a rule are one test.

* `VERDICTS`: (rule, dialect, launch, assumed, verdict), for `test_verdict`. A verdict is "error", "error crash" or
  "error crash init" (as exact as the row means it), "needs FACT", "fine" (the rule applies and finds nothing), "not
  concerned" (it does not apply), or "all: HCP002 HCP003": just these findings when every rule runs ("all:" is none).
* `TEXTS`: (rule, dialect, launch, assumed, text), for `test_text`: what the finding says, or its keys, facts and fixes,
  in this order and with bars between. A text after `message: `, `found: ` or `wanted: ` must stand in that field.
* `FIXES`: (rule, dialect, launch, assumed, fixes), for `test_fixes`: what each offered fix writes, in order. On
  Megatron-LM's command line its words must say the same.

A launch is what its dialect has on a command line, or a file's text if it has several lines.
"""

from __future__ import annotations

import re
import shlex
from functools import cache, lru_cache
from pathlib import Path

from megatron_hcp.cli.explain.command import varies
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.repair.fixes import apply_fix
from megatron_hcp.judge.report import Finding, Report
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.coerce import coerce
from megatron_hcp.launch.dialects.table import FACTS, index_of
from megatron_hcp.launch.fact import Dialect, Fact, Launch, Setting
from megatron_hcp.launch.facts.spec import FactSpec
from megatron_hcp.launch.forms.words.settings import Word
from megatron_hcp.launch.readers.target import read_text
from megatron_hcp.launch.readers.words import reading_of_words
from megatron_hcp.rules.registry import BY_ID, INDEX, RULES
from megatron_hcp.rules.rule import Example, Rule
from support.rows import each
from support.selection import examples

Row = tuple[str, Dialect, str, str, str]
FixRow = tuple[str, Dialect, str, str, tuple[str, ...]]

NOT_ABOUT_FACTS = {"accept", "assume", "key", "start"}
"""Families that read the comments, the assumptions, the keys themselves, or upstream's code."""
ONLY_WHAT_IS_STATED = {"CP017", "CP020", "DCP028", "PACK008", "SLURM010"}
"""Rules that answer to stated facts alone, so that nothing can be missing. This set may only shrink.

Notes in the tables of known faults are such rules too.
"""


def family_of(rule_id: str) -> str:
    """The folder of a rule's tests: the letters of its id, in lower case."""
    return rule_id.rstrip("0123456789").lower()


FAMILIES = tuple(sorted({family_of(rule.id) for rule in RULES}))


@cache
def launch(dialect: Dialect, text: str, assumed: str = "") -> Launch:
    """The launch that a command line or override list describes, with assumptions (`te=2.14 nodes=2`).

    A text of several lines is a file's.
    """
    facts = {}
    for word in assumed.split():
        name, _, value = word.partition("=")
        row = FACTS[name] if name in FACTS else FactSpec(name, "str", "")
        facts[name] = Fact(coerce(row, Setting(name, value)), "assumed")
    if "\n" in text:
        return build_launch(read_text(text, "example", dialect=dialect), assumed=facts)
    return build_launch(reading_of_words(dialect, [Word(word) for word in shlex.split(text)], "-"), assumed=facts)


def example(of: Example) -> Launch:
    """The launch of a rule's example."""
    return launch(of.dialect, of.text, of.assume)


def verdict(rule_id: str, of: Launch) -> str:
    """What one rule says of a launch, in the words of a table; several models' verdicts are joined by commas."""
    report = check_launch(of, (BY_ID[rule_id],), fixes=False, verdict=False)
    for item in report.findings:
        assert set(_stated_otherwise(item)) <= set(_varying(rule_id)), f"`hcp explain {rule_id}` does not say so"
    said = [f"{finding.severity} {finding.effect} {finding.stage}" for finding in report.findings]
    said += [f"needs {name}" for item in report.not_checked for name in item.needs]
    return ", ".join(said) or ("fine" if report.applied else "not concerned")


def _stated_otherwise(item: Finding) -> list[str]:
    """Which of severity, effect and stage are not the rule's; a value that was only presumed softens the severity."""
    names = ("effect", "stage") if item.presumed else ("severity", "effect", "stage")
    return [name for name in names if getattr(item, name) != getattr(item.rule, name)]


@cache
def _varying(rule_id: str) -> tuple[str, ...]:
    return varies(BY_ID[rule_id])


def finding(rule_id: str, of: Launch, *, fixes: bool = False) -> Finding:
    """The finding of one rule, with the fixes that every rule lets pass if they are wanted."""
    rules = _besides(rule_id) if fixes else (BY_ID[rule_id],)
    found = [item for item in check_launch(of, rules, fixes=fixes, verdict=False).findings if item.rule.id == rule_id]
    assert found, f"{rule_id} has no finding"
    return found[0]


def found_by_all(of: Launch) -> str:
    """The ids of everything that is found in a launch."""
    return " ".join(item.rule.id for item in check_launch(of, RULES, fixes=False, verdict=False).findings)


def test_verdict(verdict_rows: list[Row]) -> None:
    each(_check_verdict, verdict_rows)


def test_text(text_rows: list[Row]) -> None:
    each(_check_text, text_rows)


def test_fixes(fix_rows: list[FixRow]) -> None:
    each(_check_fixes, fix_rows)


def _check_verdict(rule_id: str, dialect: Dialect, text: str, assumed: str, expected: str) -> None:
    of = launch(dialect, text, assumed)
    if expected.startswith("all:"):
        assert found_by_all(of) == expected[4:].strip()
        return
    said = verdict(rule_id, of)
    assert said == expected or said.startswith(f"{expected} "), f"{rule_id} says {said}"
    assert "," not in said, f"several models, several verdicts: {said}"


def _check_text(rule_id: str, dialect: Dialect, words: str, assumed: str, expected: str) -> None:
    found = finding(rule_id, launch(dialect, words, assumed))
    problem = found.problem
    field, _, text = expected.partition(": ")
    if field in ("message", "found", "wanted"):
        assert text in getattr(problem, field)
        return
    said = (problem.message, problem.found, problem.wanted, *found.keys, *problem.facts)
    said += tuple(fix.effect for fix in problem.fixes)
    assert expected in " | ".join(said)


def _check_fixes(rule_id: str, dialect: Dialect, text: str, assumed: str, expected: tuple[str, ...]) -> None:
    offered = finding(rule_id, launch(dialect, text, assumed), fixes=True).fixes
    assert tuple(" ".join(item.overrides) for item in offered) == expected
    if dialect == "mlm":
        assert [item.cli for item in offered] == [command_line_words(item.overrides) for item in offered]


def command_line_words(overrides: tuple[str, ...]) -> tuple[str, ...]:
    """The words of Megatron-LM's command line for these overrides; none where an option has to go, or there is none."""
    words: list[str] = []
    for override in overrides:
        key, _, value = override.partition("=")
        option = "--" + key.replace("_", "-")
        if key.startswith("env."):
            words.append(override.removeprefix("env."))
        elif value == "true":
            words.append(option)
        elif key in index_of("mlm") and value not in ("null", "false"):
            words += [option, *value.split()]
    return tuple(words)


@cache
def _besides(rule_id: str) -> tuple[Rule, ...]:
    """All rules; in the quick set without those of upstream's own start-up, which take longer than all others do,
    unless the rule is one.
    """
    if examples(quick=0, full=1) or family_of(rule_id) == "start":
        return RULES
    return tuple(rule for rule in RULES if family_of(rule.id) != "start")


@lru_cache(maxsize=2)
def _report(of: Example, rule_id: str) -> Report:
    """What all rules say of an example, whatever its releases are, with the fixes that they offer. The verdict, which
    takes longer, is sought with `--all` alone.
    """
    report = check_launch(example(of), _besides(rule_id), verdict=bool(examples(quick=0, full=1)))
    return report._replace(findings=tuple(item for item in report.findings if not item.problem.only_in))


class Examples:
    """What must hold for each registered rule, by executing its two examples: each method without an underscore."""

    def test_examples(self, rule: Rule) -> None:
        names = [name for name in dir(self) if not name.startswith(("_", "test_"))]
        each(lambda name: getattr(self, name)(rule), [(name,) for name in names])

    def the_good_example_has_no_finding_at_all(self, rule: Rule) -> None:
        assert _report(rule.good, rule.id).findings == ()

    def the_good_example_is_decided(self, rule: Rule) -> None:
        undecided = {item.rule.id: item.needs for item in _report(rule.good, rule.id).not_checked}
        assert rule.id not in undecided, f"the good example lacks {undecided[rule.id]}"

    def the_bad_example_has_this_finding_alone(self, rule: Rule) -> None:
        assert [item.rule.id for item in _report(rule.bad, rule.id).findings] == [rule.id]

    def a_fix_is_offered_wherever_the_rule_has_one(self, rule: Rule) -> None:
        found = _report(rule.bad, rule.id).findings[0]
        if found.problem.fixes:
            tried = [(dict(fix.edits), fix.renames) for fix in found.problem.fixes]
            assert found.fixes, f"none of these fixes was found good: {tried}"

    def every_offered_fix_clears_the_rule_and_adds_no_error(self, rule: Rule) -> None:
        """The quick set takes the first fix."""
        bad = example(rule.bad)
        fixes = _report(rule.bad, rule.id).findings[0].fixes
        for fix in fixes[: examples(quick=1, full=len(fixes))]:
            fixed = apply_fix(bad, fix)
            assert fixed is not None
            after = check_launch(fixed, _besides(rule.id), fixes=False, verdict=False)
            assert rule.id not in {item.rule.id for item in after.findings}
            assert after.num_findings("error") == 0

    def the_finding_says_what_happens_what_was_found_and_what_is_wanted(self, rule: Rule) -> None:
        problem = _report(rule.bad, rule.id).findings[0].problem
        for text in (problem.message, problem.found, problem.wanted, *(fix.effect for fix in problem.fixes)):
            assert text.strip() == text and text and not text.endswith("."), text
            assert len(text) < 160, text
        assert problem.facts or problem.location

    def the_texts_are_there_and_short(self, rule: Rule) -> None:
        assert 10 < len(rule.title) <= 72 and not rule.title.endswith(".")
        assert 30 < len(rule.why) <= 600 and rule.why.endswith((".", '"'))
        assert rule.source

    def severity_effect_and_stage_are_those_that_are_published(self, rule: Rule) -> None:
        module = (rule.table or rule.check.__module__).removeprefix("megatron_hcp.rules.")
        line = f"{rule.id} {module} {rule.severity} {rule.effect} {rule.stage}"
        assert line in Path(INDEX).read_text(encoding="utf-8").splitlines()

    def the_severity_fits_the_effect(self, rule: Rule) -> None:
        allowed = {
            "error": {"crash", "hang", "silent", "oom"},
            "warning": {"slow", "silent", "crash", "hang", "oom", "note"},
            "info": {"note", "slow"},
        }
        assert rule.effect in allowed[rule.severity]

    def a_source_is_a_qualified_name_and_a_text_of_one_line_and_never_a_line_number(self, rule: Rule) -> None:
        for source in rule.source:
            assert source.contains or source.absent
            assert "\n" not in source.contains + source.absent
            assert not re.search(r":\d+$", source.path)

    def a_rule_that_lacks_a_fact_is_not_checked_and_never_passed(self, rule: Rule) -> None:
        """Of the bad example's facts at least one is needed, and a finding never rests on the one that it blames.

        The quick set ends with the first that is needed.
        """
        if family_of(rule.id) in NOT_ABOUT_FACTS:
            return
        bad = example(rule.bad)
        named = finding(rule.id, bad).problem.facts
        blamed, needed = named[0], set[str]()
        for name in sorted(bad.facts, key=lambda name: (name != blamed, name not in named)):
            if needed and name != blamed and not examples(quick=0, full=1):
                break
            others = {other: fact for other, fact in bad.facts.items() if other != name}
            report = check_launch(bad._replace(facts=others), (rule,), fixes=False, verdict=False)
            needed |= {name for item in report.not_checked if name in item.needs}
            if name == blamed:
                assert not report.findings, f"{rule.id} finds a fault in {name} although it is unknown"
        is_told = rule.id in ONLY_WHAT_IS_STATED or (bool(rule.table) and rule.severity == "info")
        assert bool(needed) != is_told, f"{rule.id} asks for {needed or 'nothing'}"
