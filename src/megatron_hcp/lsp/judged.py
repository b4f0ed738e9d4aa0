"""One open document, judged: what an editor underlines, explains and offers to fix. Knows no protocol."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from megatron_hcp.cli.explain.command import page
from megatron_hcp.cli.reports.words import fact_value, finding_text, fix_text
from megatron_hcp.ground.asked import recording
from megatron_hcp.ground.errors import HcpError, UnrecognisedError
from megatron_hcp.ground.place import Location
from megatron_hcp.ground.repository import repository_root
from megatron_hcp.ground.secrets import without_secrets
from megatron_hcp.ground.visible import visible
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.repair.patch import patch_of
from megatron_hcp.judge.report import Finding, OfferedFix, Report
from megatron_hcp.judge.start.judged import newest_first
from megatron_hcp.launch.dialects.table import FACTS
from megatron_hcp.launch.fact import Launch, shown_value
from megatron_hcp.launch.load import LoadOptions, load_text_as
from megatron_hcp.project.accepting import accepted, choices
from megatron_hcp.project.baseline import baseline_of
from megatron_hcp.project.config import forget, refuse_unusable, settings_of
from megatron_hcp.project.place import CONFIG
from megatron_hcp.rules.registry import RULES, rule_of, rules_for, selected
from megatron_hcp.rules.rule import Rule

Level = Literal["error", "warning", "info"]


class Mark(NamedTuple):
    """What is shown at a place of the document."""

    place: Location
    level: Level
    code: str
    text: str


class JudgedText(NamedTuple):
    """A document's launches, with what is shown of them.

    `paths`: the files that were read, or looked for, beside the document; absolute. `rules` are those that judged it.
    """

    marks: tuple[Mark, ...] = ()
    reports: tuple[Report, ...] = ()
    paths: frozenset[str] = frozenset()
    rules: Callable[[Launch], Iterable[Rule]] = rules_for
    has_fixes: bool = False


def judged(text: str, path: str) -> JudgedText:
    """Checks a document by its text and its path; one that is no launch has no marks.

    What its repository states holds, as for `hcp check`; a document that states it is checked for mistakes.
    """
    forget()
    baseline_of.cache_clear()
    with recording() as made:
        found = _settings_judged(text, path) if os.path.basename(path) == CONFIG else _judged(text, path)
    return found._replace(paths=frozenset(made.paths))


def _settings_judged(text: str, path: str) -> JudgedText:
    folder = os.path.dirname(path)
    try:
        refuse_unusable(text, path, repository_root(folder) or folder)
    except HcpError as error:
        return JudgedText((_mark_of_error(error, path),))
    return JudgedText()


def _judged(text: str, path: str) -> JudgedText:
    try:
        launches = load_text_as(text, path, LoadOptions(find_project=settings_of))
        rules = selected(*choices(path, None, None))
        reports = [accepted(path, check_launch(launch, rules, fixes=False)) for launch in launches]
    except UnrecognisedError:
        return JudgedText()
    except HcpError as error:
        return JudgedText((_mark_of_error(error, path),))
    marks = tuple(mark for report in reports for mark in _marks(report, path))
    return JudgedText(marks, tuple(reports), rules=rules)


def each_release(doc: JudgedText) -> Iterator[str]:
    """Judges the document's first launch by each release that may apply; yields each name when done."""
    for report in doc.reports[:1]:
        for releases in newest_first(report.launch):
            yield from (judged.release for judged in releases)


def with_fixes(doc: JudgedText) -> JudgedText:
    """The same with the findings' fixes, each tried: what takes longest, and nobody asks for with each change."""
    if doc.has_fixes:
        return doc
    reports = tuple(check_launch(report.launch, doc.rules) for report in doc.reports)
    return doc._replace(reports=reports, has_fixes=True)


def titles_of_fixes(doc: JudgedText, code: str, place: Location) -> list[str]:
    """What each fix of a finding does, in the order of the fixes; `doc` is one with fixes."""
    return [
        _shown(f"{fix_text(report.launch, fix)}: {fix.effect}")
        for report, finding in _found(doc, code, place)[:1]
        for fix in finding.fixes
    ]


def _mark_of_error(error: HcpError, path: str) -> Mark:
    file, line, column = (*(error.at or (path, 1)), 1)[:3]
    here = (
        Location(path, line, column, line, column + 1) if os.path.abspath(file) == path else Location(path, 1, 1, 1, 2)
    )
    return Mark(here, "error", "unreadable", _shown(str(error)))


def _marks(report: Report, path: str) -> list[Mark]:
    """The findings that lie in this document, and what it hides; a finding without a place is at its command."""
    start = report.launch.reading.line or 1
    command = Location(path, start, 1, start, 1_000)
    found = [
        Mark(
            _in(finding.location, path) or command,
            finding.severity,
            finding.id,
            _shown(finding_text(finding)),
        )
        for finding in report.findings
    ]
    for item in report.undecided:
        text = f"undecided: {item.do}, because {item.reason}" if item.do else f"undecided: {item.reason}"
        found.append(Mark(_in(item.location, path) or command, "info", "undecided", _shown(text)))
    return found


def _in(place: Location | None, path: str) -> Location | None:
    return place if place is not None and place.file == path else None


def _shown(text: str) -> str:
    return without_secrets(visible(text))


def fixed_text(doc: JudgedText, code: str, place: Location, number: int) -> str | None:
    """The document with one fix of a finding, tried as `hcp check --diff` does; None if it has no place for it."""
    for report, finding in _found(doc, code, place):
        if number < len(finding.fixes):
            wanted = finding.fixes[number]

            def is_wanted(_: object, fix: OfferedFix, wanted: OfferedFix = wanted) -> bool:
                return (fix.edits, fix.without, fix.renames) == (wanted.edits, wanted.without, wanted.renames)

            return patch_of(report.launch, [finding], RULES, may_be_made=is_wanted).after
    return None


def _found(doc: JudgedText, code: str, place: Location) -> list[tuple[Report, Finding]]:
    """The findings of a rule at a place, at most one of each launch."""
    found = (
        (report, next((one for one in report.findings if one.id == code and _is_at(one, report, place)), None))
        for report in doc.reports
    )
    return [(report, finding) for report, finding in found if finding is not None]


def _is_at(finding: Finding, report: Report, place: Location) -> bool:
    location = _in(finding.location, place.file)
    return (location.line if location else report.launch.reading.line or 1) == place.line


def explained(doc: JudgedText, path: str, line: int, column: int) -> str:
    """Markdown for a place, 1-based: the rules of the findings there, else what is set there and the option; or ""."""
    codes = [mark.code for mark in doc.marks if _covers(mark.place, line, column)]
    pages = [page(rule_of(code.partition("/")[0])) for code in dict.fromkeys(codes) if code[:1].isupper()]
    if pages:
        return "\n\n---\n\n".join(pages)
    for report in doc.reports:
        said = [
            _shown(f"`{name}` = {shown_value(fact_value(name, fact))}: {_about(name)}")
            for name, fact in report.launch.facts.items()
            if fact.origin != "derived" and _is_here(fact.location, path, line, column)
        ]
        keys = [one.key for one in report.launch.reading.settings if _is_here(one.location, path, line, column)]
        if said or keys:
            return "\n\n".join([*said[:1], *_option(keys[:1])])
    return ""


def _about(name: str) -> str:
    return FACTS[name].doc if name in FACTS else "a variable or an option of the job"


def _option(keys: Iterable[str]) -> Iterator[str]:
    """The pages of those that are upstream's options."""
    from megatron_hcp.cli.explain.option import option_named, option_page

    for key in keys:
        with suppress(HcpError):
            yield option_page(option_named(key), most=8)


def _is_here(place: Location | None, path: str, line: int, column: int) -> bool:
    here = _in(place, path)
    return here is not None and _covers(here, line, column)


def _covers(place: Location, line: int, column: int) -> bool:
    return (place.line, place.column) <= (line, column) <= (place.end_line, place.end_column)


def dialect_in(docs: Sequence[Report]) -> tuple[str, str] | None:
    """(dialect, role) of the first launch."""
    return (docs[0].launch.dialect, docs[0].launch.reading.role) if docs else None
