"""Fixes as one patch of the launch's own file, proved by reading the patched text again."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from hcp.core.errors import HcpError
from hcp.core.place import Location
from hcp.launch.build import build_launch
from hcp.launch.fact import Launch, Setting
from hcp.launch.load import load_text
from hcp.rules.fixes import apply_edits, writable_key, written_edit
from hcp.rules.report import Finding
from hcp.rules.rule import Rule
from hcp.rules.run import findings_by_id


class Patch(NamedTuple):
    """One unified diff of the launch's file ("" = none), and (rule id, reason) of each finding without a part in it."""

    text: str
    left_out: tuple[tuple[str, str], ...] = ()


class _Change(NamedTuple):
    start: int
    end: int
    text: str


def patch_of(launch: Launch, findings: Iterable[Finding], rules: Iterable[Rule]) -> Patch:
    """The first fix of each finding as one unified diff, which `patch -p1` applies as a whole.

    Fixes are taken in order, each on the text that the ones before have left; one whose rule an earlier fix has
    cleared is not needed. The patched text is read again: unless it says what the fix says, the fix is left out.
    """
    rules = tuple(rules)
    original = text = launch.reading.text
    made: dict[str, dict[str, Any]] = {}
    left_out: list[tuple[str, str]] = []
    for finding in findings:
        if not finding.fixes:
            continue
        if original is None or text is None:
            left_out.append((finding.rule.id, "the launch is not in a file"))
            continue
        before, edits = made.setdefault(finding.role, {}), dict(finding.fixes[0].edits)
        owner = _of_role(launch, finding.role)
        if before and finding.rule.id not in _firing(owner, before, (finding.rule,)):
            continue
        if before and (edits.keys() & before.keys() or _has_new_error(owner, before, {**before, **edits}, rules)):
            left_out.append((finding.rule.id, "its fix does not go with the others: apply them, and check again"))
            continue
        patched, reason = _patched(_of_role(load_text(launch, text), finding.role), text, edits)
        if reason:
            left_out.append((finding.rule.id, reason))
            continue
        text = patched
        before.update(edits)
    return Patch(_diff(launch.reading.target, original or "", text or ""), tuple(left_out))


def _of_role(launch: Launch, role: str) -> Launch:
    """The model of the launch that a finding is about: verl's ref and critic are read beside the actor."""
    other = next((reading for reading in launch.reading.others if reading.role == role), None)
    return launch if other is None else build_launch(other, assumed=launch.assumed, model=launch.model)


def _firing(launch: Launch, edits: Mapping[str, Any], rules: Iterable[Rule]) -> dict[str, Finding]:
    edited = apply_edits(launch, edits) if edits else launch
    return {} if edited is None else findings_by_id(edited, rules)


def _has_new_error(launch: Launch, before: Mapping[str, Any], after: Mapping[str, Any], rules: Iterable[Rule]) -> bool:
    old = {*_firing(launch, {}, rules), *_firing(launch, before, rules)}
    return any(item.severity == "error" and name not in old for name, item in _firing(launch, after, rules).items())


def _patched(launch: Launch, text: str, edits: Mapping[str, Any]) -> tuple[str, str]:
    """The text with the edits made, or the reason why they have no place in it."""
    changes = []
    for name, value in edits.items():
        change = _change(launch, text, name, value)
        if change is None:
            return text, f"{name} has no place in {launch.reading.target}; use the override"
        changes.append(change)
    patched = text
    for change in sorted(changes, reverse=True):
        patched = patched[: change.start] + change.text + patched[change.end :]
    if not _says(launch, patched, edits):
        return text, f"{launch.reading.target} builds this value from others; use the override"
    return patched, ""


def _diff(name: str, old: str, new: str) -> str:
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{name}", f"b/{name}", n=2
    )
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)


def _says(launch: Launch, patched: str, edits: Mapping[str, Any]) -> bool:
    wanted = apply_edits(launch, edits)
    try:
        got = _of_role(load_text(launch, patched), launch.reading.role)
    except HcpError:
        return False
    return wanted is not None and all(
        (got.facts[name].value if name in got.facts else None)
        == (wanted.facts[name].value if name in wanted.facts else None)
        for name in edits
    )


def _change(launch: Launch, text: str, name: str, value: Any) -> _Change | None:
    key = writable_key(launch, name)
    if key is None:
        return None
    written = [setting for setting in launch.reading.settings if setting.key == key]
    place = written[-1].location if written else None
    if place is not None and place.file == launch.reading.target:
        return _replace(launch, text, name, value, place)
    return _insert(launch, text, name, value, key)


def _replace(launch: Launch, text: str, name: str, value: Any, place: Location) -> _Change:
    start, end = _offset(text, place.line, place.column), _offset(text, place.end_line, place.end_column)
    override, words = written_edit(launch, name, value)
    if launch.reading.form == "yaml":
        return _Change(start, end, override.partition("=")[2])
    if launch.dialect != "mlm":
        # Some readers place an override at its whole word, others at its value.
        written = text[start:end].lstrip("'\"")
        if "=" not in written.partition("[")[0]:
            return _Change(start, end, override.partition("=")[2])
        # Hydra's "+" stays: without it a key that the schema lacks is refused.
        plus = "+" * (len(written) - len(written.lstrip("+")))
        return _Change(start, end, shlex.join([plus + override]))
    if not words:
        return _without(text, start, end)
    if launch.reading.form == "args-yaml":
        return _Change(start, end, words[1] if len(words) == 2 else f'"[{" ".join(words[1:])}]"')
    return _Change(start, end, shlex.join(words))


def _insert(launch: Launch, text: str, name: str, value: Any, key: str) -> _Change | None:
    """Beside the nearest setting of the same section: on its line in shell, on a line of its own in YAML."""
    section = key.rpartition(".")[0]
    beside = [
        setting
        for setting in launch.reading.settings
        if setting.location is not None
        and setting.location.file == launch.reading.target
        and setting.key.rpartition(".")[0] == section
    ]
    if not beside:
        return None
    neighbour = _best_neighbour(beside)
    place = neighbour.location
    assert place is not None
    override, words = written_edit(launch, name, value)
    if launch.reading.form in ("yaml", "args-yaml"):
        return _insert_line(text, place, key, neighbour, override, words, launch.reading.form)
    end = _offset(text, place.end_line, place.end_column)
    new = words if launch.dialect == "mlm" else words or [override]
    before = text[_offset(text, place.line, 1) : _offset(text, place.line, place.column)]
    alone = before.strip().lstrip("+") in ("", f"{neighbour.key}=")
    rest = text[end:].partition("\n")[0].strip()
    if launch.reading.form == "overrides" and alone and not rest:
        return _Change(end, end, "\n" + shlex.join(new))
    # A flag to take away that is not there leaves the text as it is.
    return _Change(end, end, " " + shlex.join(new) if new else "")


def _best_neighbour(beside: list[Setting]) -> Setting:
    parallel = [setting for setting in beside if "context_parallel" in setting.key or "cp_comm" in setting.key]
    return (parallel or beside)[-1]


def _insert_line(
    text: str, place: Location, key: str, neighbour: Setting, override: str, words: list[str], form: str
) -> _Change | None:
    line_start = _offset(text, place.line, 1)
    before = text[line_start : _offset(text, place.line, place.column)]
    name = neighbour.key.rpartition(".")[2]
    if form == "yaml" and not before.strip().startswith((name, f"'{name}", f'"{name}')):
        return None  # a flow mapping on one line: there is no line to put beside
    indent = before[: len(before) - len(before.lstrip())]
    end = text.find("\n", _offset(text, place.end_line, place.end_column))
    end = len(text) if end < 0 else end
    if form == "args-yaml":
        if not words:
            return _Change(end, end, "")
        value = words[1] if len(words) == 2 else ("true" if len(words) == 1 else f'"[{" ".join(words[1:])}]"')
        return _Change(end, end, f"\n{indent}{words[0]}: {value}")
    return _Change(end, end, f"\n{indent}{key.rpartition('.')[2]}: {override.partition('=')[2]}")


def _without(text: str, start: int, end: int) -> _Change:
    """The flag's span taken out, with its whole line where nothing else but a continuation stands there."""
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end
    if text[line_start:start].strip() == "" and text[end:line_end].strip() in ("", "\\"):
        return _Change(line_start, min(line_end + 1, len(text)), "")
    while end < len(text) and text[end] == " ":
        end += 1
    return _Change(start, end, "")


def _offset(text: str, line: int, column: int) -> int:
    """The position of a 1-based line and column."""
    position = 0
    for _ in range(line - 1):
        position = text.index("\n", position) + 1
    return position + column - 1
