"""Wording shared by all formats: a finding, a value, a fix, and what to state so that a rule can be checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from megatron_hcp.ground.secrets import HIDDEN, is_secret_name
from megatron_hcp.judge.report import Finding, OfferedFix, Presumed, Report
from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.fact import Fact, Launch, shown_value
from megatron_hcp.launch.facts.last_read import LastRead, last_read
from megatron_hcp.launch.hidden import key_to_set
from megatron_hcp.validators.outcome import Judgement

WIDTH = 80
LONGEST = 156
"""Columns of a line in a log, where an ellipsis becomes three points: at most 160."""
_MANY = 5
_MANY_NAMES = 3
_MANY_PRESUMED = 3


def details_of(finding: Finding) -> tuple[str, str]:
    """What was found and what is expected; empty where the message already says it."""
    problem = finding.problem
    return ("" if problem.found in problem.message else problem.found), problem.wanted


def finding_text(finding: Finding) -> str:
    """The finding in one sentence."""
    found, expected = details_of(finding)
    details = "; ".join(filter(None, (found and f"found {found}", expected and f"expected {expected}")))
    return f"{finding.problem.message} ({details})" if details else finding.problem.message


def launch_name(launch: Launch) -> str:
    """The target; in a script with several launches, also what distinguishes this one."""
    reading = launch.reading
    return reading.target if reading.command is None else f"{reading.target}, {reading.command}"


def presumed_text(items: Sequence[Presumed]) -> str:
    """The values that were presumed, least certain first, with the number of recipes that set another one."""
    least = sorted(items, key=lambda item: -item.recipes_set)[:_MANY_PRESUMED]
    said = [f"{item.recipes_set} of {item.recipes} recipes differ" for item in least[:1]]
    said += [str(item.recipes_set) for item in least[1:]]
    shown = [f"{item.key} {shown_value(item.value)} ({count})" for item, count in zip(least, said)]
    return ", ".join(shown) + (f"; {len(items) - len(least)} more in hcp show" if len(items) > len(least) else "")


def fact_value(name: str, fact: Fact) -> Any:
    """A fact's value, unless it is secret."""
    is_secret = isinstance(fact.value, str) and (is_secret_name(name) or is_secret_name(fact.key or ""))
    return HIDDEN if is_secret else fact.value


def fix_text(launch: Launch, fix: OfferedFix) -> str:
    """What to type: flags for a Megatron-LM command line, overrides elsewhere. Of many new names, only the first."""
    if len(fix.renames) > _MANY_NAMES and launch.reading.text is not None:
        more = f", and {len(fix.renames) - 1} more names, which --diff shows"
        return f"{(fix.cli or fix.overrides)[0].partition('=')[0]} for {(fix.without or fix.overrides)[0]}{more}"
    if FRAMEWORKS[launch.dialect].is_command_line:
        import shlex

        words = [*([shlex.join(fix.cli)] if fix.cli else []), *fix.lines]
        flags = ", ".join(fix.without)
        if words:
            return "; ".join(words) + (f" (without {flags})" if flags else "")
        return f"leave out {flags}" if flags else " ".join(fix.overrides)
    words = list(fix.overrides if launch.reading.form == "yaml" else fix.cli)
    text = "; ".join([" ".join(words), *fix.lines] if words else fix.lines or fix.overrides)
    return text + (f" (without {', '.join(fix.without)})" if fix.without else "")


def what_to_add(launch: Launch, names: Sequence[str]) -> str:
    """The options that would state the first few of these facts."""
    from megatron_hcp.launch.hf import STATED

    by_model = [name for name in names if name in STATED and "model_name" not in launch.model]
    written = unique(key_to_set(launch, name) for name in names if name not in by_model)
    assumed = [option.removeprefix("--assume ") for option in written if option.startswith("--assume ")]
    keys = [option for option in written if not option.startswith("--assume ")]
    options = ["--model config.json"] if by_model else []
    options += ["--assume " + " ".join(assumed[:_MANY])] if assumed else []
    options += keys[: 2 if options else 3]
    return " ".join(options) + (" ..." if len(assumed) > _MANY or len(keys) > 3 else "")


def numbered(count: int, noun: str, nouns: str | None = None) -> str:
    """`1 rule`, `2 rules`; `nouns` where the plural takes more than an s."""
    return f"{count:,} {noun if count == 1 else nouns or f'{noun}s'}"


def verdict_word(report: Report, strict: bool) -> str:
    """FAILED, UNDECIDED or ok, matching the exit code except under `--allow-undecided`."""
    if report.failed(strict):
        return "FAILED"
    return "UNDECIDED" if report.verdict == "undecided" else "ok"


def rules_by_need(report: Report) -> list[tuple[str, list[str]]]:
    """(the facts that are missing, the ids of the rules that need them), most rules first."""
    by_need: dict[str, list[str]] = {}
    for item in report.not_checked:
        by_need.setdefault(", ".join(item.needs), []).append(item.rule.id)
    return sorted(by_need.items(), key=lambda entry: (-len(entry[1]), entry[0]))


def reading_lines() -> list[str]:
    """What was read of each upstream project, and when."""
    rows = [(f"{row.project} {row.revision}", row) for row in last_read()]
    width = max(len(name) for name, _ in rows)
    return [f"  {name:<{width}}  {_read_text(row)}" for name, row in rows]


def _read_text(row: LastRead) -> str:
    what = row.version + (f" {row.commit[:10]}" if row.commit else "") + (f" of {row.date}" if row.date else "")
    return f"{what}, read {row.read_on}"


def unique(names: Iterable[str]) -> list[str]:
    """The names without duplicates, in order."""
    return list(dict.fromkeys(names))


def wrapped(label: str, text: str, indent: int | None = None, width: int = WIDTH) -> list[str]:
    """The text after its label; further lines are aligned with it, or at `indent`. Words are never broken.

    >>> wrapped("  do      ", "one two", 4)
    ['  do      one two']
    """
    # textwrap alone, with its four patterns, takes a twentieth of a check's start.
    lines: list[str] = []
    start, words, length = label, list[str](), len(label)
    for word in text.split(" "):
        if any(words) and length + len(word) > width:
            lines.append((start + " ".join(words)).rstrip())
            start, words = " " * (len(label) if indent is None else indent), []
            length = len(start)
        if word or words or not lines:
            words.append(word)
            length += len(word) + 1
    return [*lines, (start + " ".join(words)).rstrip()] if any(words) else lines


def judged_lines(report: Report) -> list[str]:
    """How much of upstream's own start-up an ok covers."""
    if report.findings:
        return []
    if not report.judged_by:
        stated = report.launch.facts.get("mcore")
        if report.launch.dialect != "mlm" or stated is None:
            return []
        return [f"upstream's start-up: not judged, {stated.value} was not read; --upstream DIR reads your own"]
    by_repo: dict[str, list[Judgement]] = {}
    for one in report.judged_by:
        by_repo.setdefault(one.repo, []).append(one)
    return [_judged_line(judged, len(by_repo) > 1) for judged in by_repo.values()]


def _judged_line(judged: list[Judgement], named: bool) -> str:
    first, last = judged[0], judged[-1]
    release = last.release if first == last else f"{first.release} to {last.release}"
    refused = len(last.refusals)  # each is ignored, or silent in an excerpt: a finding would stand here
    count = f"{last.evaluated - last.num_open - refused} of {last.evaluated + last.unreadable}"
    more = f", {refused} not shown" if refused else ""
    more += f", {last.unreadable} could not be read" if last.unreadable else ""
    whose = f"{last.repo} {release}" if named else release
    return f"upstream's start-up ({whose}): {count} guards passed, {last.num_open} open{more}"
