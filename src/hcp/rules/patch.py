"""A fix as a patch of the launch's own file, proved by reading the patched text again."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from hcp.core.errors import HcpError
from hcp.launch.fact import Launch, Location, Setting
from hcp.rules.fixes import apply_edits, writable_key, written_edit
from hcp.rules.report import OfferedFix


class Patch(NamedTuple):
    """A unified diff, or the reason why there is none."""

    text: str
    reason: str = ""


class _Change(NamedTuple):
    start: int
    end: int
    text: str


def patch_of(launch: Launch, fix: OfferedFix) -> Patch:
    """The fix as a unified diff of the launch's file.

    The patched text is read again; unless it says what the fix says, there is no patch.
    """
    text = launch.reading.text
    if text is None:
        return Patch("", "the launch is not in a file")
    changes = []
    for name, value in fix.edits:
        change = _change(launch, text, name, value)
        if change is None:
            return Patch("", f"{name} has no place in {launch.reading.target}; use the override")
        changes.append(change)
    patched = text
    for change in sorted(changes, reverse=True):
        patched = patched[: change.start] + change.text + patched[change.end :]
    if not _says(launch, patched, dict(fix.edits)):
        return Patch("", f"{launch.reading.target} builds this value from others; use the override")
    name = launch.reading.target
    lines = difflib.unified_diff(
        text.splitlines(keepends=True), patched.splitlines(keepends=True), f"a/{name}", f"b/{name}", n=2
    )
    return Patch("".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)
                 .rstrip("\n"))


def _says(launch: Launch, patched: str, edits: Mapping[str, Any]) -> bool:
    from hcp.launch.load import load_text

    wanted = apply_edits(launch, edits)
    try:
        got = load_text(launch, patched)
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
    if launch.kind != "mlm":
        # Some readers place an override at its whole word, others at its value.
        whole = "=" in text[start:end].partition("[")[0]
        return _Change(start, end, shlex.join([override]) if whole else override.partition("=")[2])
    if not words:
        return _without(text, start, end)
    if launch.reading.form == "args-yaml":
        return _Change(start, end, words[1] if len(words) == 2 else f'"[{" ".join(words[1:])}]"')
    return _Change(start, end, shlex.join(words))


def _insert(launch: Launch, text: str, name: str, value: Any, key: str) -> _Change | None:
    """Beside the nearest setting of the same section: on its line in shell, on a line of its own in YAML."""
    section = key.rpartition(".")[0]
    beside = [
        setting for setting in launch.reading.settings
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
    new = words if launch.kind == "mlm" else [override]
    before = text[_offset(text, place.line, 1) : _offset(text, place.line, place.column)]
    alone = before.strip().lstrip("+") in ("", f"{neighbour.key}=")
    rest = text[end:].partition("\n")[0].strip()
    if launch.reading.form == "overrides" and alone and not rest:
        return _Change(end, end, "\n" + shlex.join(new))
    return _Change(end, end, " " + shlex.join(new)) if new else None


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
            return None
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
