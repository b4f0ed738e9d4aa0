"""Where an edit goes in a launch's text, and what is written there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

from megatron_hcp.ground.place import Location
from megatron_hcp.judge.repair.fixes import writable_key, written_edit
from megatron_hcp.launch.dialects.frameworks import COMMAND_LINES
from megatron_hcp.launch.dialects.table import index_of
from megatron_hcp.launch.fact import Launch, Setting


class Change(NamedTuple):
    """A span of the text and its replacement."""

    start: int
    end: int
    text: str


def changes_of(launch: Launch, text: str, name: str, value: Any) -> Iterator[list[Change]]:
    """The ways to make one edit of a configuration key; none if it has no place in the text."""
    key = writable_key(launch, name)
    if key is None:
        return
    index = index_of(launch.dialect, launch.reading.role)
    same = {key, *(other for other, entry in index.items() if entry.fact == name)}
    written = [setting for setting in launch.reading.settings if setting.key == key]
    place = written[-1].location if written else None
    if value is None and launch.dialect in COMMAND_LINES:
        places = [setting.location for setting in launch.reading.settings if setting.key in same]
        here = [each for each in places if each is not None and each.file == launch.reading.target]
        yield [_replace(launch, text, name, value, each) for each in here]
    elif place is not None and place.file == launch.reading.target:
        yield [_replace(launch, text, name, value, place)]
    else:
        change = _insert(launch, text, name, value, key)
        if change is not None:
            yield [change]


def _replace(launch: Launch, text: str, name: str, value: Any, place: Location) -> Change:
    start, end = span_of(launch, text, place)
    override, words = written_edit(launch, name, value)
    if launch.reading.form == "yaml" and text[start:end].startswith("- "):
        return Change(text.rfind(":", 0, start) + 1, end, " " + yaml_list(override.partition("=")[2], ""))
    if launch.reading.form == "yaml":
        return Change(start, end, yaml_list(override.partition("=")[2], text[start:end]))
    if launch.dialect not in COMMAND_LINES:
        # Some readers locate an override at its whole word, others at its value.
        written = text[start:end].lstrip("'\"")
        if "=" not in written.partition("[")[0]:
            return Change(start, end, override.partition("=")[2])
        # Hydra's "+" stays: without it a key that the schema lacks is rejected.
        plus = "+" * (len(written) - len(written.lstrip("+")))
        return Change(start, end, shlex.join([plus + override if plus else words[0]]))
    if launch.reading.form == "args-yaml":
        if not words or words[0].lstrip("-").replace("-", "_") != writable_key(launch, name):
            return _line_of_key(text, start, end, words)
        return Change(start, end, args_value(words))
    if not words:
        return without(text, start, end)
    return Change(start, end, shlex.join(words))


def yaml_list(value: str, before: str) -> str:
    """A flow list with spaces after its commas if the one that it replaces has them.

    >>> yaml_list("[2,2]", "[4, 2]"), yaml_list("[2,2]", "[4,2]"), yaml_list("p2p", "[a2a, p2p]")
    ('[2, 2]', '[2,2]', 'p2p')
    """
    return (
        value
        if not value.startswith("[") or (before.startswith("[") and ", " not in before)
        else (value.replace(",", ", "))
    )


def args_value(words: list[str]) -> str:
    """What Megatron-LM's test configurations write for a flag's words: a list is a string in brackets.

    >>> args_value(["--swiglu"]), args_value(["--cp", "4"]), args_value(["--sizes", "2", "2"])
    ('true', '4', '"[2 2]"')
    """
    return "true" if len(words) == 1 else words[1] if len(words) == 2 else f'"[{" ".join(words[1:])}]"'


def _line_of_key(text: str, start: int, end: int, words: list[str]) -> Change:
    """The line of a flag in MODEL_ARGS removed, or used for another flag."""
    first, last = text.rfind("\n", 0, start) + 1, line_end(text, end)
    indent = text[first:start][: len(text[first:start]) - len(text[first:start].lstrip())]
    if words:
        return Change(first, last, f"{indent}{words[0]}: {args_value(words)}")
    return Change(first, min(text.find("\n", end) + 1 or len(text), len(text)), "")


def _insert(launch: Launch, text: str, name: str, value: Any, key: str) -> Change | None:
    """Next to the nearest setting of the same section: on its line in shell unless it has one alone, on a new line in
    YAML."""
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
    start, end = span_of(launch, text, place)
    if launch.reading.form in ("yaml", "args-yaml"):
        return _insert_line(text, start, end, key, neighbour, override, words, launch.reading.form)
    new = words if launch.dialect in COMMAND_LINES else words or [override]
    before = text[text.rfind("\n", 0, start) + 1 : start]
    alone = before.strip().lstrip("+") in ("", f"{neighbour.key}=")
    rest = text[end : line_end(text, end)].strip()
    if launch.reading.form == "overrides" and alone and not rest:
        return Change(end, end, newline_of(text, end) + shlex.join(new))
    above = text[: start - len(before)].rstrip("\r\n")
    if new and not before.strip() and rest in ("", "\\") and (rest or above).endswith("\\"):
        return Change(end, end, f" \\{newline_of(text, end)}{before}{shlex.join(new)}")  # a line alone, as it has
    # Removing a flag that isn't there leaves the text unchanged.
    return Change(end, end, " " + shlex.join(new) if new else "")


def _best_neighbour(beside: list[Setting]) -> Setting:
    parallel = [setting for setting in beside if "context_parallel" in setting.key or "cp_comm" in setting.key]
    return (parallel or beside)[-1]


def _insert_line(
    text: str, start: int, end: int, key: str, neighbour: Setting, override: str, words: list[str], form: str
) -> Change | None:
    before = text[text.rfind("\n", 0, start) + 1 : start]
    name = neighbour.key.rpartition(".")[2]
    if form == "yaml" and not before.strip().startswith((name, f"'{name}", f'"{name}')):
        return None  # a flow mapping on one line: there is no line to add it next to
    indent = before[: len(before) - len(before.lstrip())]
    at = line_end(text, end)
    if form == "args-yaml":
        if not words:
            return Change(at, at, "")
        return Change(at, at, f"{newline_of(text, at)}{indent}{words[0]}: {args_value(words)}")
    value = yaml_list(override.partition("=")[2], "")
    return Change(at, at, f"{newline_of(text, at)}{indent}{key.rpartition('.')[2]}: {value}")


def without(text: str, start: int, end: int) -> Change:
    """A span removed, with its whole line if only a continuation remains there."""
    first, last = text.rfind("\n", 0, start) + 1, line_end(text, end)
    if text[first:start].strip() == "" and text[end:last].strip() in ("", "\\"):
        return Change(first, text.find("\n", end) + 1 or len(text), "")
    while end < len(text) and text[end] == " ":
        end += 1
    return Change(start, end, "")


def line_end(text: str, position: int) -> int:
    """Where the line of a position ends: before its line feed, including a carriage return before that."""
    end = text.find("\n", position)
    end = len(text) if end < 0 else end
    return end - 1 if end > position and text[end - 1] == "\r" else end


def newline_of(text: str, position: int) -> str:
    """The line ending in use at a position."""
    end = text.find("\n", position)
    end = text.rfind("\n") if end < 0 else end
    return "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"


_YAML_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""What ends a line for libyaml; all other readers use only the line feed."""


def span_of(launch: Launch, text: str, place: Location) -> tuple[int, int]:
    """The offsets of a place in the text: lines and columns are 1-based, as the launch's reader counts them."""
    if launch.reading.form in ("yaml", "args-yaml"):
        starts = [0, *(match.end() for match in _YAML_BREAK.finditer(text))]
    else:
        starts = [0, *(match.end() for match in re.finditer("\n", text))]
    return starts[place.line - 1] + place.column - 1, starts[place.end_line - 1] + place.end_column - 1
