"""A check's report as lines: one per finding, one per fix, and the verdict last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from megatron_hcp.cli.reports.once import once
from megatron_hcp.cli.reports.words import (
    LONGEST,
    details_of,
    finding_text,
    fix_text,
    judged_lines,
    launch_name,
    numbered,
    presumed_text,
    rules_by_need,
    unique,
    verdict_word,
    what_to_add,
    wrapped,
)
from megatron_hcp.cli.screen import Line, Part
from megatron_hcp.judge.age import ages_of
from megatron_hcp.judge.report import Finding, Report, Undecided
from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.dialects.table import FACTS
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.images import unlisted_image
from megatron_hcp.rules.known.row import PACKAGES
from megatron_hcp.rules.rule import Severity

COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
_MANY_NEEDS = 4
"""Facts whose rules stand in the line that says what to add; the rules of more take a line of their own."""
_MOST_OF_A_GUARD = 2
"""Fixes of a guard of upstream's that are shown."""
_MOST_BY_RELEASE = 2
"""Findings that wait for a release and are shown one by one; more take one line together."""


def finding_lines(report: Report, finding: Finding) -> list[Line]:
    """One line for the finding, and one for each fix; an info has its first fix in its line."""
    if finding.severity == "info":
        if not finding.fixes:
            return [headline(report, finding, finding_text(finding))]
        found, _ = details_of(finding)  # the fix says what is expected
        said = f"{finding.problem.message} (found {found})" if found else finding.problem.message
        return [headline(report, finding, f"{said}; fix: {fix_text(report.launch, finding.fixes[0])}")]
    return [
        headline(report, finding, finding_text(finding)),
        *(f"    fix: {fix_text(report.launch, fix)}  # {fix.effect}" for fix in finding.fixes),
    ]


def report_lines(
    report: Report,
    *,
    strict: bool = False,
    shown: Callable[[Report, Finding], Iterable[Line]] = finding_lines,
) -> list[Line]:
    """The report, with each finding formatted by `shown` and the verdict last."""
    body = body_lines(report, strict=strict, shown=shown)
    return [*heading_lines(report), *body, *judged_lines(report), verdict_line(report, strict)]


def heading_lines(report: Report) -> list[Line]:
    """Which of a script's launches this is; nothing where it is the only one."""
    reading = report.launch.reading
    return [] if reading.command is None else [f"{reading.target}:{reading.line}: {reading.command}"]


def body_lines(
    report: Report,
    *,
    strict: bool = False,
    shown: Callable[[Report, Finding], Iterable[Line]] = finding_lines,
    brief: bool = False,
) -> list[Line]:
    """What stands between the heading and the verdict; `brief`: only what is acted on, as of a launch in a folder."""
    reading = report.launch.reading
    lines: list[Line] = [] if brief else [f"{reading.target}: note: {note}" for note in reading.notes]
    by_release = _by_release(report)
    folded = by_release if len(by_release) > _MOST_BY_RELEASE else ()
    waits = brief or report.failed()  # nobody acts on an info before the launch passes
    told = [one for one in report.findings if one not in folded and not (waits and one.severity == "info")]
    lines += [line for finding in once(told) for line in shown(report, _with_few_fixes(finding))]
    lines += _release_lines(report, folded)
    if not report.failed():  # else shown once it passes: the verdict counts them, JSON and `hcp show` list them
        lines += [] if brief else _presumed_lines(report)
        lines += [] if brief and not report.failed(strict) else _not_checked_lines(report)
    lines += _undecided_lines(report, _not_in_the_verdict(report, strict))
    if not brief:
        ages = () if report.failed() else ages_of(report.launch)  # the verdict of a failed one names them
        lines += [f"note: {note}" for note in (*ages, *_image_notes(report.launch))]
        lines += _backports_lines(report)
    return [*lines, *_run_lines(report)]


def _with_few_fixes(finding: Finding) -> Finding:
    """The nearest changes that satisfy a guard of upstream's; the JSON has all."""
    return finding._replace(fixes=finding.fixes[:_MOST_OF_A_GUARD]) if finding.problem.guard else finding


def quiet_lines(
    report: Report,
    shown: Callable[[Report, Finding], Iterable[Line]] = finding_lines,
    *,
    strict: bool = False,
) -> list[Line]:
    """What needs to be acted on, and nothing else: errors, warnings, what is undecided, what fails with --strict."""
    found = [finding for finding in once(report.findings) if finding.severity != "info"]
    lines = [line for finding in found for line in shown(report, _with_few_fixes(finding))]
    lines += _undecided_lines(report, once_each(report.undecided))
    refused = report.run.lines if report.run is not None and report.is_refused else ()
    lines += refused
    if not lines and report.failed(strict):
        lines = [*_not_checked_lines(report), verdict_line(report, strict)]
    return lines


def _image_notes(launch: Launch) -> list[str]:
    """That the launch's image says nothing of its releases, until one is stated."""
    image = unlisted_image(launch.reading, launch.assumed)
    if image is None or not launch.assumed.keys().isdisjoint(PACKAGES):
        return []
    return [f"the image {image} isn't listed, so that its releases aren't known: state them with --assume"]


def _run_lines(report: Report) -> list[Line]:
    """What upstream's own code did, and the rules that it contradicts."""
    if report.run is None:
        return []
    suspects = [f"suspect: {name}: upstream's own code passed the stage of this error" for name in report.run.suspects]
    return [*report.run.lines, *suspects]


def _backports_lines(report: Report) -> list[Line]:
    launch = report.launch
    if not any(package in launch.facts for package in PACKAGES):
        return []
    from megatron_hcp.backports.lacking import lacking
    from megatron_hcp.cli.reports.backports import count_line, fault_lines

    found = lacking(launch).lacking
    if report.failed():  # another release is not chosen before the launch passes
        return fault_lines(found)
    cited = " ".join(finding.problem.wanted for finding in report.findings)
    return [*fault_lines(found), *count_line(found, cited)]


def headline(report: Report, finding: Finding, text: str) -> Line:
    """Place, severity, id and the message."""
    place = finding.location
    where = f"{place.file}:{place.line}:{place.column}" if place else report.launch.reading.target
    role = f" [{finding.role}]" if finding.role and finding.role != report.launch.reading.role else ""
    label = Part(f"{finding.severity} {finding.id}", COLOURS[finding.severity], bold=True)
    return (f"{where}: ", label, f"{role} {text}")


def once_each(undecided: Iterable[Undecided]) -> tuple[Undecided, ...]:
    """The first item of each thing to do."""
    return tuple({item.do or item.reason: item for item in reversed(tuple(undecided))}.values())[::-1]


def undecided_text(item: Undecided) -> str:
    """The reason, and what to do: the order of an annotation."""
    return f"{item.reason}: {item.do}" if item.do else item.reason


def _to_do(item: Undecided) -> str:
    """What to do, and why: the order of a line that is read to act on it."""
    return f"{item.do}, because {item.reason}" if item.do else item.reason


def _undecided_lines(report: Report, items: Iterable[Undecided]) -> list[Line]:
    said = (wrapped(f"{_where(report, item)}: undecided: ", _to_do(item), 4, LONGEST) for item in items)
    return [line for lines in said for line in lines]


def _presumed_lines(report: Report) -> list[Line]:
    """How many settings were presumed and who decides them, then those of which most recipes set another value."""
    doubtful = [item for item in report.presumed if item.recipes_set]
    if not doubtful:
        return []
    many = numbered(len(doubtful), "setting")
    if not FRAMEWORKS[report.launch.dialect].model_decides:
        what = f"{many} that the recipe decides; name it with --recipe NAME"
    elif not report.launch.model:
        what = f"{many} that the model decides; add --model config.json"
    else:
        what = f"{many} that neither the launch nor config.json states; add --set KEY=VALUE where the model differs"
    return [f"presumed: {what}", *wrapped("    ", presumed_text(doubtful), width=LONGEST)]


def _by_release(report: Report) -> tuple[Finding, ...]:
    """The findings that only a release decides, which the launch doesn't state: their rules are open, too."""
    open_rules = {item.rule.id for item in report.not_checked}
    return tuple(finding for finding in report.findings if finding.rule.id in open_rules)


def _release_lines(report: Report, folded: Sequence[Finding]) -> list[Line]:
    """One line for the findings of which all that can be done is to state a release."""
    if not folded:
        return []
    rules = unique(finding.rule.id for finding in folded)
    needs = unique(name for item in report.not_checked if item.rule.id in rules for name in item.needs)
    label = Part(f"warning: {len(rules)} faults of some releases", COLOURS["warning"], bold=True)
    state = f"concern this launch ({' '.join(rules)}); state yours: {what_to_add(report.launch, needs)}"
    return [(f"{report.launch.reading.target}: ", label, f" {state}")]


def _not_checked_lines(report: Report) -> list[Line]:
    """The rules by the fact that each lacks, and what to add so that they are checked; findings were told before."""
    told = {finding.rule.id for finding in report.findings}
    by_need = ((need, [rule for rule in rules if rule not in told]) for need, rules in rules_by_need(report))
    groups = [(need, rules) for need, rules in by_need if rules]
    if not groups:
        return []
    needs = unique(name for need, _ in groups for name in need.split(", "))
    parts = ", ".join(f"{' '.join(rules)} ({need})" for need, rules in groups)
    add = what_to_add(report.launch, needs)
    line = f"not checked: {parts}; add {add}"
    if len(groups) <= _MANY_NEEDS and len(line) <= LONGEST:
        return [line]
    many = numbered(sum(len(rules) for _, rules in groups), "rule")
    return [*wrapped("", f"not checked: {many}; add {add}", 4, LONGEST), *wrapped("    ", parts, width=LONGEST)]


def _where(report: Report, item: Undecided) -> str:
    place = item.location
    return f"{place.file}:{place.line}:{place.column}" if place else report.launch.reading.target


def _not_in_the_verdict(report: Report, strict: bool) -> tuple[Undecided, ...]:
    """The undecided items to be told, each thing to do once; the last line of an UNDECIDED one states the first, if it
    has room for it."""
    items = once_each(report.undecided)
    return items[1:] if verdict_word(report, strict) == "UNDECIDED" and _has_room(report) else items


def _has_room(report: Report) -> bool:
    return len(launch_name(report.launch)) + len(_to_do(report.undecided[0])) < LONGEST - _COUNTS


_COUNTS = 55
"""Columns that the verdict and its counts take."""


def _silent_waiting(report: Report) -> str:
    """The errors that nobody would see and that only want for a release: "ok" must not be read as their absence."""
    told = {finding.rule.id for finding in report.findings}
    waiting = {
        item.rule.id: item.needs
        for item in report.not_checked
        if item.rule.id not in told
        and item.rule.severity == "error"
        and item.rule.effect == "silent"
        and all(name in FACTS and FACTS[name].type == "version" for name in item.needs)
    }
    if not waiting:
        return ""
    needs = unique(name for names in waiting.values() for name in names)
    assume = " ".join(f"{name}=VERSION" for name in needs)
    return f"; not ruled out: {' '.join(waiting)}, silently wrong in some releases (--assume {assume})"


def verdict_line(report: Report, strict: bool = False) -> tuple[str | Part, ...]:
    """The last line: the verdict, and how much it covers."""
    found = {severity: report.num_findings(severity) for severity in SEVERITIES}
    accepted = f", {len(report.accepted)} accepted" if report.accepted else ""
    left = len(report.not_checked)
    word = verdict_word(report, strict)
    colour, more = {"FAILED": ("red", ""), "UNDECIDED": ("yellow", "")}.get(word, ("yellow" if left else "green", ""))
    if word == "UNDECIDED":
        more = f": {_to_do(report.undecided[0])}" if _has_room(report) else ""
        found = {severity: count for severity, count in found.items() if count}
    elif word == "ok" and left:
        more = f" as far as checked{_silent_waiting(report)}"
    elif word == "FAILED" and not report.failed():
        more = " (--strict)"
    counts = ", ".join(numbered(count, severity) for severity, count in found.items())
    if found.get("info") and report.failed():
        counts += " shown once it passes"
    ages = [age.as_of for age in ages_of(report.launch)[:1]] if report.failed() else []
    parts = [f"{counts}{accepted}".removeprefix(", "), f"{_applied(report)} applied, {left} not checked", *ages]
    return (
        f"{launch_name(report.launch)}: ",
        Part(word, colour, bold=True),
        f"{more}{';' if word == 'UNDECIDED' and more else ':'} {'; '.join(filter(None, parts))}",
    )


def _applied(report: Report) -> str:
    """How many rules were applied; of upstream's guards, where only they were selected."""
    if report.applied or not report.judged_by:
        return numbered(report.applied, "rule")
    return numbered(report.judged_by[-1].evaluated, "guard")
