"""Hide and see: `python lab hide --corpus DIR…`. If a setting is hidden, `ok` must hold for all its values.

Takes launches of which every setting could be read: those of upstream checkouts and of examples/, the rules' good
examples, and Megatron-Bridge's recipes written as full configurations. Each setting that the rules know is hidden in
turn, in every way that its form has (see `Way` in hidden_launches.py), and the launch is checked. Where the answer is
`ok`, the setting's legal values are tried in its place: one that fails makes the answer a violation. A key that
launch/facts/presumed.txt lists, hidden by an unknown recipe alone, counts at its presumed value. An answer `failed` is
a false alarm: with the value that was hidden the launch is `ok`.

Prints the counts by dialect and way, each violation and each false alarm; the exit status is 1 if there is any, or if
more than 2 % of the complete launches are undecided as they are.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from complete_launches import complete_launches
from hidden_launches import CLUSTER, Complete, Hidden
from legal_values import ABSENT, legal_values
from program import parser_of

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.report import Report
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.dialects.table import FACTS
from megatron_hcp.launch.fact import Reading
from megatron_hcp.launch.facts.presumed import presumptions
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.launch.options import parse_assumptions
from megatron_hcp.rules.registry import rule_of, rules_for

MOST_UNDECIDED = 0.02
VERSIONS = "te=2.14 mcore=0.16.1 bridge=0.4.2 verl=0.9.1 arch=sm90 cudnn=9.18 einops=true"
"""Assumed if a launch doesn't state versions: without them many rules decide nothing."""


class Violation(NamedTuple):
    """A launch that was `ok` with a setting hidden, a value of that setting with which it fails, and the rules.

    A false alarm is the reverse: it failed with the setting hidden, and is `ok` with the value.
    """

    launch: str
    dialect: str
    fact: str
    key: str
    way: str
    value: Any
    rules: tuple[str, ...]


class Checker:
    """Checks texts as `hcp check` does, through a file in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def report(self, text: str, name: str, assumed: str, words: tuple[str, ...] = ()) -> Report | None:
        """The report, or None if the launch is refused."""
        target = ""
        if not words:
            file = self.folder / Path(name).name
            file.write_text(text)
            target = str(file)
        try:
            launch = load_launch(target, LoadOptions(words=words, assumes=tuple(assumed.split())))
        except HcpError:
            return None
        return check_launch(launch, rules_for, fixes=False)

    def answer(self, text: str, name: str, assumed: str, words: tuple[str, ...] = ()) -> str:
        report = self.report(text, name, assumed, words)
        return "refused" if report is None else report.verdict

    def failing_rules(self, reading: Reading, assumed: str) -> tuple[str, ...]:
        try:
            launch = build_launch(reading, assumed=parse_assumptions(assumed.split()))
        except HcpError:
            return ()
        findings = check_launch(launch, rules_for, fixes=False).findings
        return tuple(finding.rule.id for finding in findings if finding.severity == "error")


class Play:
    """One pass over the launches: the answers, how often each came, and what was wrong."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.answers: Counter[tuple[str, str, str]] = Counter()
        self.bases: Counter[tuple[str, str]] = Counter()
        self.undecided: list[str] = []
        self.violations: list[Violation] = []
        self.alarms: list[Violation] = []

    def launch(self, of: Complete) -> None:
        """Hides each setting of a launch in turn."""
        base = self.checker.answer(of.text, of.name, of.assumed)
        self.bases[of.dialect, base] += 1
        if base == "undecided":
            self.undecided.append(of.name)
        if base != "ok":
            return
        for fact in of.facts():
            if fact in CLUSTER:
                continue
            faults: dict[bool, tuple[Any, tuple[str, ...]] | None] = {}
            for hidden in of.hidings(fact):
                self.hiding(of, fact, hidden, faults)

    def hiding(
        self, of: Complete, fact: str, hidden: Hidden, faults: dict[bool, tuple[Any, tuple[str, ...]] | None]
    ) -> None:
        report = self.checker.report(hidden.text, hidden.name or of.name, of.assumed, hidden.words)
        answer: str = "refused" if report is None else report.verdict
        if report is not None and answer == "ok":
            if hidden.by_recipe and fact in presumptions():
                fault = self._presumed_fault(of, fact, report)
            else:
                if hidden.may_be_absent not in faults:
                    faults[hidden.may_be_absent] = self._fault(of, fact, hidden.may_be_absent)
                fault = faults[hidden.may_be_absent]
                if hidden.by_recipe and fault is not None and all(rule_of(name).recipe_settled for name in fault[1]):
                    fault = None  # a recipe gets it right by itself
            if fault is not None:
                answer = "VIOLATION"
                key = of.key(fact)
                self.violations.append(Violation(of.name, of.dialect, fact, key, hidden.way, *fault))
        elif report is not None and answer == "failed" and not (hidden.by_recipe and fact in presumptions()):
            answer = "ALARM"  # with the value that was hidden the launch is ok
            rules = tuple(finding.rule.id for finding in report.findings if finding.severity == "error")
            self.alarms.append(Violation(of.name, of.dialect, fact, of.key(fact), hidden.way, of.value(fact), rules))
        self.answers[of.dialect, hidden.way, answer] += 1

    def _fault(self, of: Complete, fact: str, may_be_absent: bool) -> tuple[Any, tuple[str, ...]] | None:
        """A legal value with which the launch fails, and the rules; None where each is fine."""
        for value in legal_values(FACTS[fact], of.value(fact)):
            if value is ABSENT and not may_be_absent:
                continue
            rules = self.checker.failing_rules(of.with_value(fact, value), of.assumed)
            if rules:
                return ("absent" if value is ABSENT else value), rules
        return None

    def _presumed_fault(self, of: Complete, fact: str, report: Report) -> tuple[Any, tuple[str, ...]] | None:
        """The presumed value, where the launch fails with it and no warning says so."""
        presumption = presumptions()[fact]
        value = list(presumption.value) if isinstance(presumption.value, tuple) else presumption.value
        rules = self.checker.failing_rules(of.with_value(fact, value), of.assumed)
        warned = {finding.rule.id for finding in report.findings if finding.presumed and presumption.recipes_set}
        missed = tuple(rule for rule in rules if rule not in warned)
        return (presumption.value, missed) if missed else None


def play(launches: Iterable[Complete]) -> Play:
    """The outcome of hiding each setting of each launch."""
    memory = Path("/dev/shm")  # thousands of small files: kept off the disk if possible
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        done = Play(Checker(Path(folder)))
        for launch in launches:
            done.launch(launch)
        return done


def lines_of(done: Play) -> Iterator[str]:
    """What is printed about a pass."""
    total = sum(done.bases.values())
    told = ", ".join(f"{count} {dialect} {answer}" for (dialect, answer), count in sorted(done.bases.items()))
    share = len(done.undecided) / total if total else 0.0
    yield f"{total} complete launches ({told}); {share:.1%} undecided, at most {MOST_UNDECIDED:.0%} may be"
    for name in done.undecided[:20]:
        yield f"undecided as it is: {name}"
    kinds = ("ok", "undecided", "failed", "refused", "VIOLATION", "ALARM")
    yield f"{'dialect':8s}{'way':12s}" + "".join(f"{kind:>11s}" for kind in kinds)
    for dialect, way in sorted({key[:2] for key in done.answers}):
        yield f"{dialect:8s}{way:12s}" + "".join(f"{done.answers[dialect, way, kind]:11d}" for kind in kinds)
    by_cause = Counter((item.fact, item.rules[0], item.dialect) for item in (*done.violations, *done.alarms))
    for (fact, rule_id, dialect), count in by_cause.most_common():
        yield f"{count:6d}  {dialect:8s}{rule_id:9s}{fact}"
    for item in done.violations:
        told = f"{item.launch}: {item.key} hidden by {item.way} is ok, {item.value} fails {' '.join(item.rules)}"
        yield f"violation {told}"
    for item in done.alarms:
        told = f"{item.launch}: {item.key} hidden by {item.way} fails {' '.join(item.rules)}, {item.value} is ok"
        yield f"false alarm {told}"


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--corpus", type=Path, nargs="*", default=[], metavar="DIR", help="upstream checkouts")
    parser.add_argument("--sample", type=int, metavar="N", help="only N launches, chosen by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", metavar="TEXT", help="only launches whose name contains TEXT")
    parser.add_argument("--assume", default=VERSIONS, metavar="NAME=VALUE…", help="for all but the rules' examples")
    options = parser.parse_args()
    missing = [folder for folder in options.corpus if not folder.is_dir()]
    if missing:
        parser.error(f"{missing[0]} is no folder")
    launches = list(complete_launches(options.corpus, options.assume))
    launches = [launch for launch in launches if not options.only or options.only in launch.name]
    if options.sample is not None and options.sample < len(launches):
        launches = random.Random(options.seed).sample(launches, options.sample)
    started = time.perf_counter()
    done = play(launches)
    print(*lines_of(done), sep="\n")
    seconds = time.perf_counter() - started
    total = sum(done.answers.values())
    print(f"{total} hidings, {len(done.violations)} violations, {len(done.alarms)} false alarms, {seconds:.0f} s")
    too_many = len(done.undecided) > MOST_UNDECIDED * sum(done.bases.values())
    return 1 if done.violations or done.alarms or too_many else 0


if __name__ == "__main__":
    sys.exit(main())
