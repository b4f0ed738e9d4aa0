"""What two verdicts on one launch mean: agreement, a false alarm, a silent rule, or a refusal that no rule knows."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import yaml

from megatron_hcp.ground.json_layout import ROW_WIDTH, laid_out
from megatron_hcp.judge.report import Report
from megatron_hcp.rules.registry import RULES
from megatron_hcp.rules.rule import Stage

_T = TypeVar("_T")
_DECIDED_AT: frozenset[Stage] = frozenset(("config", "init"))
_SHORTEST_CITATION = 12
_GUARDS = "START"
"""How the ids of rules begin that are upstream's own guards: they speak for any refusal."""
_NOT_RUN = ("get_model.", "setup_model_and_optimizer.", "DistributedDataParallel.", "te.", "FullySharded")
"""How the slugs of guards begin that stand where the comparison does not come: they need a model on devices."""
_KEPT = 20
"""How many launches of each kind of disagreement are kept."""


class Refusal(NamedTuple):
    """What upstream says against a launch: `text` is the error's type and message, `code` the statement that raised it.

    `where` is that statement's file and function, `megatron/training/arguments.py validate_args`.
    """

    text: str
    code: str = ""
    where: str = ""


class Tables(NamedTuple):
    """What is known of one upstream's refusals and of our rules; patterns are searched in a refusal's text and code.

    `owners`: a pattern, and the rules of which one must report an error where upstream refuses so, beside those that
    cite the statement. `unrelated`: a pattern, and why no rule is wanted. `beyond`: rules about what this part of
    upstream does not check, and why.
    """

    owners: Sequence[tuple[str, Sequence[str]]]
    unrelated: Sequence[tuple[str, str]]
    beyond: Mapping[str, str]


class Errors(NamedTuple):
    """Our errors on a launch: those that upstream's start-up decides, and those it does not look at.

    `warned` are the rules that warn: for example, of what a branch refuses today and may accept tomorrow.
    """

    comparable: tuple[str, ...]
    beyond: tuple[str, ...]
    warned: tuple[str, ...] = ()


def errors_of(report: Report, tables: Tables) -> Errors:
    """The ids of the errors in a report. Errors that are silent, or show after the start, are beyond the comparison."""
    comparable: list[str] = []
    beyond: list[str] = []
    warned = tuple(finding.rule.id for finding in report.findings if finding.severity == "warning")
    for finding in report.findings:
        if finding.severity == "error":
            decided = (
                finding.stage in _DECIDED_AT
                and finding.effect == "crash"
                and finding.rule.id not in tables.beyond
                and not (finding.problem.guard or "").startswith(_NOT_RUN)
            )
            (comparable if decided else beyond).append(finding.rule.id)
    return Errors(tuple(comparable), tuple(beyond), warned)


def citing(refusal: Refusal) -> tuple[str, ...]:
    """The rules that cite what the refusing statement says."""
    said = _joined(f"{refusal.text} | {refusal.code}")
    file, _, function = refusal.where.rpartition(" ")
    return tuple(
        rule.id
        for rule in RULES
        if any(
            len(source.contains) > _SHORTEST_CITATION
            and file.endswith(source.path)
            and source.qualname.rpartition(".")[2] == function
            and _joined(source.contains) in said
            for source in rule.source
        )
    )


def owners_of(refusal: Refusal, tables: Tables) -> Sequence[str]:
    """The rules of which one must report an error where upstream refuses so; none for what is unrelated."""
    owners = _finds(tables.owners, refusal)
    if owners is None and _finds(tables.unrelated, refusal) is None:
        return citing(refusal)
    return owners or ()


def _finds(table: Sequence[tuple[str, _T]], refusal: Refusal) -> _T | None:
    """The value of the first pattern that the refusal's text or code has."""
    said = f"{refusal.text} | {refusal.code}"
    return next((value for pattern, value in table if re.search(pattern, said)), None)


def _joined(text: str) -> str:
    """A text without white space and quotes: a message may be written over several lines."""
    return re.sub(r"""[\s"']+""", "", text)


class Tally:
    """The comparison of many launches with one upstream."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.counts: Counter[str] = Counter()
        self.false_alarms: Counter[str] = Counter()
        self.silent_rules: Counter[str] = Counter()
        self.without_a_rule: Counter[str] = Counter()
        self.not_listed: Counter[str] = Counter()
        self.unrelated: Counter[str] = Counter()
        self.agreed: Counter[str] = Counter()
        self.beyond: Counter[str] = Counter()
        self.launches: dict[str, list[str]] = {}

    def add(self, launch: str, refusal: Refusal | None, ours: Errors) -> None:
        """Counts one launch; `launch` is its words, kept where the two verdicts disagree."""
        self.counts["launches"] += 1
        self.beyond.update(ours.beyond)
        if refusal is None:
            self._add_accepted(launch, ours)
            return
        guards = {rule_id for rule_id in ours.comparable if rule_id.startswith(_GUARDS)}
        owners = owners_of(refusal, self._tables) or sorted(guards)
        if owners:
            reported = set(owners) & {*ours.comparable, *ours.beyond} or guards
            warned = set(owners) & set(ours.warned)
            self.agreed.update(reported | warned)
            said = "refused by both" if reported else "refused upstream, warned here" if warned else "silent rule"
            self.counts[said] += 1
            if not reported and not warned:
                self._keep(self.silent_rules, f"{' or '.join(owners)}: {_shape(refusal)}", launch)
            return
        if _finds(self._tables.unrelated, refusal) is not None:
            self.counts["refused upstream, unrelated"] += 1
            self.unrelated[_shape(refusal)] += 1
            return
        self.counts["refused upstream, without a rule"] += 1
        self._keep(self.without_a_rule, _shape(refusal), launch)
        if not any(re.search(text, f"{refusal.text} | {refusal.code}") for text in _listed()):
            self.not_listed[_shape(refusal)] += 1

    def _add_accepted(self, launch: str, ours: Errors) -> None:
        self.counts["false alarm" if ours.comparable else "accepted by both"] += 1
        for rule_id in ours.comparable:
            self._keep(self.false_alarms, rule_id, launch)

    def _keep(self, counter: Counter[str], name: str, launch: str) -> None:
        counter[name] += 1
        kept = self.launches.setdefault(name, [])
        if len(kept) < _KEPT:
            kept.append(launch)

    @property
    def share_without_a_rule(self) -> float:
        return self.counts["refused upstream, without a rule"] / max(1, self.counts["launches"])

    @property
    def agrees(self) -> bool:
        """No false alarm, no silent rule, and at most 2 % related refusals without a rule, each in the list of them."""
        wrong = self.false_alarms or self.silent_rules or self.not_listed
        return not wrong and self.share_without_a_rule <= 0.02

    def as_json(self) -> dict[str, Any]:
        """All counts, most frequent first; without the launches."""
        return {
            "counts": dict(sorted(self.counts.items())),
            "percent_without_a_rule": round(100 * self.share_without_a_rule, 2),
            **{
                name.replace(" ", "_"): dict(counter.most_common())
                for name, counter in {
                    "false alarms": self.false_alarms,
                    "silent rules": self.silent_rules,
                    "without a rule": self.without_a_rule,
                    "not listed": self.not_listed,
                    "unrelated": self.unrelated,
                    "agreed by rule": self.agreed,
                    "not comparable": self.beyond,
                }.items()
            },
        }


@cache
def _listed() -> tuple[str, ...]:
    """What stays without a rule, as patterns."""
    items = yaml.safe_load((Path(__file__).parent / "without_rule.yaml").read_text(encoding="utf-8"))
    return tuple(item["text"] for item in items)


def _shape(refusal: Refusal) -> str:
    """A refusal with its numbers, lists and quoted values left out, so that equal refusals count together."""
    text = refusal.text if refusal.text.partition(": ")[2] else f"{refusal.text} {refusal.code}"
    text = re.sub(r"\[[^\]]*\]|\d+(\.\d+)?", "#", text)
    return " ".join(text.split())[:160]


class Result(NamedTuple):
    """The comparison with one revision of one upstream; `made_with` says what was asked (launches, seed, stand-ins)."""

    upstream: str
    version: str
    commit: str
    made_with: Mapping[str, Any]
    tally: Tally

    def as_json(self) -> dict[str, Any]:
        named = {"upstream": self.upstream, "version": self.version, "commit": self.commit, **self.made_with}
        return {**named, **self.tally.as_json()}


def show(result: Result, launches: int = 2) -> None:
    """Prints a result, with some launches of each disagreement."""
    print(f"== {result.upstream} {result.version}, commit {result.commit}")
    tally = result.tally
    for name, count in sorted(tally.counts.items()):
        print(f"{count:8d}  {name}")
    for kind, counter in (
        ("false alarm", tally.false_alarms),
        ("silent rule", tally.silent_rules),
        ("without a rule", tally.without_a_rule),
        ("not in without_rule.yaml", tally.not_listed),
    ):
        for text, count in counter.most_common():
            print(f"{count:8d}  {kind}: {text}")
            shown = tally.launches[text][: launches if kind != "without a rule" else 0]
            print(*(f"            {line}\n" for line in shown), sep="", end="")


class Writable(Protocol):
    """What `write_results` takes: it has its `upstream` and `version`, and a branch where there are some."""

    def as_json(self) -> dict[str, Any]: ...


def write_results(path: Path, results: Iterable[Writable]) -> None:
    """Writes what was compared as JSON: one object for each revision. Other revisions that it names are kept."""
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    new = [result.as_json() for result in results]
    names = {(item["upstream"], item["version"], item.get("branch")) for item in new}
    kept = [item for item in old if (item["upstream"], item["version"], item.get("branch")) not in names]
    path.write_text(laid_out([*kept, *new], ROW_WIDTH) + "\n", encoding="utf-8")
