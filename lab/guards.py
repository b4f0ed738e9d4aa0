"""Hand-written rules against the guards of upstream that they cite: `python lab guards [--release R] [--commands N]`.

Random command lines are judged twice, by the rules and by upstream's start-up as the tables have it. Printed is each
rule that fires while all guards that it cites pass, and each guard that refuses while no rule that cites it fires: a
defect of one of the two, or a rule that needs a fact. What a rule says of the time after the start is not compared, and
a guard is not that depends on what could not be read. `--write` renews the numbers in docs/check.md instead.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from typing import Any, NamedTuple

from agree.megatron_lm import report_on
from agree.megatron_lm_launches import Drawn, draw
from guard_counts import in_page
from program import ROOT, at_least_one, parser_of

from megatron_hcp.judge.report import Report
from megatron_hcp.judge.start.context import Context, context_of
from megatron_hcp.launch.facts.known_options import all_options, revisions_with
from megatron_hcp.rules.registry import RULES
from megatron_hcp.rules.rule import START, Rule, Stage
from megatron_hcp.rules.start.citations import cites
from megatron_hcp.validators.outcome import Guard
from megatron_hcp.validators.table import guards_of, program_of_release

_ON_MEGATRON_LM = frozenset(("mlm", "bridge", "bridge-provider"))
"""The dialects of the examples of rules that a launch of Megatron-LM may concern: verl's may cite its guards too."""

_AT_THE_START: frozenset[Stage] = frozenset(("config", "init"))
"""When upstream's start-up stops a launch, as findings say it."""


class Disagreement(NamedTuple):
    """A rule and a guard that it cites, and which of them refuses."""

    rule: str
    guard: str
    refuses: str


def links(release: str) -> dict[Guard, list[Rule]]:
    """The guards of a release that rules cite, each with these rules."""
    program = program_of_release("megatron-lm", release)
    own = [
        rule
        for rule in RULES
        if rule.severity == "error" and not rule.id.startswith(START) and rule.bad.dialect in _ON_MEGATRON_LM
    ]
    found = {}
    for guard, releases in guards_of("megatron-lm").items():
        context = context_of(program, guard) if program and release in releases else Context()
        citing = [rule for rule in own if cites(rule.source, guard, (*context.around, context.own))]
        if release in releases and citing:
            found[guard] = citing
    return found


def disagreements(report: Report, cited: dict[Guard, list[Rule]]) -> list[Disagreement]:
    """What rules and guards make of one launch differently.

    Where upstream refuses for one reason, it doesn't come to the guards behind it: rules are compared only where it
    accepts.
    """
    (judged,) = report.judged_by
    refused = {refusal.guard for refusal in judged.refusals}
    opened = {item.guard for item in judged.open} | judged.blocked
    fired = {finding.rule.id for finding in report.findings}
    errors = {found.rule.id for found in report.findings if found.severity == "error" and found.stage in _AT_THE_START}
    undecided = {item.rule.id for item in report.not_checked}
    found = []
    for guard, rules in cited.items():
        ids = {rule.id for rule in rules}
        if guard in refused and not ids & (fired | undecided):
            found.append(Disagreement(", ".join(sorted(ids)), guard.slug, "guard"))
    for rule_id in () if refused else errors:
        guards = [guard for guard, rules in cited.items() if rule_id in {rule.id for rule in rules}]
        if guards and not opened & {*guards}:
            found.append(Disagreement(rule_id, ", ".join(guard.slug for guard in guards[:3]), "rule"))
    return found


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--release", action="append", default=[], metavar="R", help="such as 0.16.1; repeatable")
    parser.add_argument("--commands", type=at_least_one, default=500, metavar="N", help="launches per release")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="renew the numbers in docs/check.md")
    options = parser.parse_args()
    if options.write:
        page = ROOT / "docs/check.md"
        page.write_text(in_page(page.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    differ = 0
    for release in options.release or ["0.16.1", "0.19.0"]:
        have: dict[str, dict[str, Any]] = {
            f"--{name.replace('_', '-')}": {} for name in all_options() if release in revisions_with(name)
        }
        cited, rng = links(release), random.Random(options.seed)
        count: Counter[Disagreement] = Counter()
        shortest: dict[Disagreement, Drawn] = {}
        for _ in range(options.commands):
            launch = draw(rng, have)
            for one in disagreements(report_on(launch, [f"mcore={release}"]), cited):
                count[one] += 1
                shortest[one] = min(shortest.get(one, launch), launch, key=lambda drawn: len(drawn.words))
        print(f"== megatron-lm {release}: {len(cited)} guards are cited by rules; {options.commands} launches")
        for one, times in count.most_common():
            print(f"{times:6}  only the {one.refuses} refuses: {one.rule} and {one.guard}")
            print(f"        {shortest[one]}")
        differ += sum(count.values())
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
