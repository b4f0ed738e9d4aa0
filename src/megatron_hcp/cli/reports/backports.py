"""Upstream's later fixes, as lines and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from megatron_hcp.backports.lacking import Lacking, LaterFixes
from megatron_hcp.backports.table import Backport
from megatron_hcp.backports.topics import TOPICS
from megatron_hcp.cli.reports.words import launch_name, numbered, what_to_add
from megatron_hcp.cli.screen import Line, Part
from megatron_hcp.launch.fact import Launch
from megatron_hcp.rules.known.row import PACKAGES, Package

_FIRST = 3
"""Fixes of each release that the JSON of `hcp check` shows."""
_MOST_FAULTS = 5
"""Faults that the text of `hcp check` shows."""


def backports_lines(launch: Launch, found: LaterFixes, every: bool = False) -> list[Line]:
    """The fixes of each project under a heading, then what is not known or left to state."""
    lines: list[Line] = [f"{launch_name(launch)}:"]
    for item in found.lacking:
        lines += _project_lines(item, every)
    broad, hidden = (sum(len(getattr(item, name)) for item in found.lacking) for name in ("broad", "open"))
    if (broad or hidden) and not every:
        lines.append(f"  --all lists {broad} more to parts that most launches turn on, {hidden} to parts not shown")
    lines += [f"  not known for {PACKAGES[package]}: {reason}" for package, reason in found.not_read]
    if found.not_stated:
        add = what_to_add(launch, found.not_stated)
        lines.append(f"  not stated: the release of {_listed(found.not_stated)}; add {add}")
    return lines


def _project_lines(item: Lacking, every: bool) -> Iterable[Line]:
    upstream = item.upstream
    name = f"{PACKAGES[upstream.package]} {item.release}"
    many = numbered(len(item.touching), "later fix", "later fixes")
    read = f"(read: {upstream.repo} to {upstream.newest}, {upstream.date})"
    yield "  ", Part(f"{name} lacks {many} to what the launch turns on", bold=True), f" {read}"
    for fix, fault in item.faults:
        yield f"    {fault.effect}: {fault.symptom} ({upstream.reference(fix)}, {_fixed_in(item, fix)})"
    yield from _fix_lines(item, item.touching)
    if every and item.broad:
        yield f"  and {len(item.broad)} to parts that most launches turn on"
        yield from _fix_lines(item, item.broad)
    if every and item.open:
        yield f"  and {len(item.open)} that may touch it, by what the launch doesn't show"
        yield from _fix_lines(item, item.open)


def _fix_lines(item: Lacking, fixes: Sequence[Backport]) -> Iterable[Line]:
    width = max((len(item.upstream.reference(fix)) for fix in fixes), default=0)
    for fix in fixes:
        about = _about(item, fix)
        yield f"    {item.upstream.reference(fix):<{width}}  {_fixed_in(item, fix):<10}  {fix.title}  [{about}]"


def _about(item: Lacking, fix: Backport) -> str:
    """What of the launch a fix touches."""
    said = (TOPICS[topic].said for topic in fix.topics if topic in TOPICS)
    return ", ".join((*said, *fix.families, *item.sets(fix)))


def _fixed_in(item: Lacking, fix: Backport) -> str:
    """The first release with the fix, of those that are newer."""
    return item.mended(fix) or "unreleased"


def _mended(item: Lacking, fix: Backport) -> str:
    release = item.mended(fix)
    return f"fixed in {release}" if release else "fixed in no release yet"


def count_line(found: Sequence[Lacking], cited: str = "") -> list[Line]:
    """A line for each fix that is close to what the launch does and not `cited`; else how many each release lacks."""
    counts = {f"{PACKAGES[item.upstream.package]} {item.release}": len(item.touching) for item in found}
    parts = [f"{name}: {count}" for name, count in counts.items() if count]
    if not parts:
        return []
    total = sum(counts.values())
    close = [
        (item, fix) for item in found if (fix := item.closest) and f"{item.upstream.reference(fix)} " not in f"{cited} "
    ]
    which = ", ".join(parts)
    if not close:
        many = "1 later fix concerns" if total == 1 else f"{total} later fixes concern"
        return [f"note: {many} parts that this launch turns on ({which}): hcp backports"]
    first = (
        f"note: the closest of {total} later fixes ({which}: hcp backports)"
        if total > 1
        else f"note: a later fix ({which})"
    )
    return [
        f"{'note: another' if number else first}, {_mended(item, fix)}: {fix.title} "
        f"({item.upstream.reference(fix)}; here: {_about(item, fix)})"
        for number, (item, fix) in enumerate(close)
    ]


def fault_lines(found: Sequence[Lacking]) -> list[Line]:
    """The faults that the launch meets, a line each."""
    faults = [(item, fix, fault) for item in found for fix, fault in item.faults]
    lines: list[Line] = [
        (
            Part(f"note: {fault.effect}", bold=True),
            f" in {PACKAGES[item.upstream.package]} {item.release}, {_mended(item, fix)}: {fault.symptom} "
            f"({item.upstream.reference(fix)}; here: {fault.when})",
        )
        for item, fix, fault in faults[:_MOST_FAULTS]
    ]
    more = len(faults) - _MOST_FAULTS
    return [*lines, f"note: {more} more such: hcp backports"] if more > 0 else lines


def faults_json(found: Sequence[Lacking]) -> dict[str, Any]:
    """The same as data, under `faults`; nothing where there is none."""
    data = [
        {
            "reference": item.upstream.reference(fix),
            "package": item.upstream.package,
            "release": item.release,
            "fixed_in": item.mended(fix),
            "effect": fault.effect,
            "message": fault.symptom,
            "when": fault.when,
        }
        for item in found
        for fix, fault in item.faults
    ]
    return {"faults": data} if data else {}


def first_json(found: Sequence[Lacking]) -> list[dict[str, Any]]:
    """The same as data, with the most telling ones."""
    return [
        {
            "package": item.upstream.package,
            "release": item.release,
            "lacking": len(item.touching),
            "first": [_cited(item, fix) for fix in item.touching[:_FIRST]],
            **({} if (close := item.closest) is None else {"closest": _fix_json(item, close)}),
        }
        for item in found
        if item.touching
    ]


def _cited(item: Lacking, fix: Backport) -> str:
    return f"{item.upstream.reference(fix)} ({_fixed_in(item, fix)}): {fix.title}"


def release_json(item: Lacking) -> dict[str, Any]:
    """The fixes that a release lacks: those that touch what the launch turns on, and those that may."""
    upstream = item.upstream
    return {
        "package": upstream.package,
        "release": item.release,
        "read": {"repo": upstream.repo, "newest": upstream.newest, "date": upstream.date},
        "touching": [_fix_json(item, fix) for fix in item.touching],
        "broad": [_fix_json(item, fix) for fix in item.broad],
        "open": [_fix_json(item, fix) for fix in item.open],
    }


def _fix_json(item: Lacking, fix: Backport) -> dict[str, Any]:
    return {
        "reference": item.upstream.reference(fix),
        "fixed_in": item.mended(fix),
        "title": fix.title,
        "about": [*(topic for topic in fix.topics if topic in TOPICS), *fix.families, *item.sets(fix)],
    }


def _listed(packages: Sequence[Package]) -> str:
    names = [PACKAGES[package] for package in packages]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
