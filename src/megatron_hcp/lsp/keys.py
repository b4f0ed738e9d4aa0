"""Which keys of a framework go on from what stands before the cursor."""

from __future__ import annotations

import re
from typing import NamedTuple

from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.dialects.table import FACTS, index_of

_INDENTED = re.compile(r"( *)(?:- )?([\w.-]*)$")
_KEY = re.compile(r"( *)([\w.-]+):")
_WORD = re.compile(r"(?:^|[\s'\"])(\+{0,2}[\w.-]*)$")


class Offer(NamedTuple):
    """A key, or the next part of one, and what it sets."""

    label: str
    about: str


def offered(lines: list[str], line: int, column: int, dialect: str, role: str, is_yaml: bool) -> list[Offer]:
    """The keys that may go on at a place, 0-based, by name.

    In YAML these are the keys of the section that the indentation shows; on a command line, options or dotted keys.
    """
    before = lines[line][:column] if line < len(lines) else ""
    if is_yaml:
        match = _INDENTED.fullmatch(before)
        if match is None:
            return []
        section = _section(lines[:line], len(match[1]))
        typed = match[2]
        return _below(f"{section}.{typed}" if section else typed, section, dialect, role)
    word = _WORD.search(before)
    typed = word[1].lstrip("+") if word else ""
    if FRAMEWORKS[dialect].is_command_line:
        keys = ((f"--{key.replace('_', '-')}", entry.fact) for key, entry in index_of(dialect, role).items())
        return [Offer(label, _about(fact)) for label, fact in sorted(keys) if typed and label.startswith(typed)]
    keys = ((key, entry.fact) for key, entry in index_of(dialect, role).items())
    return [Offer(key, _about(fact)) for key, fact in sorted(keys) if typed and key.startswith(typed)]


def _section(above: list[str], indent: int) -> str:
    """The dotted path of the mapping that a line with this indentation belongs to."""
    path: list[str] = []
    for text in reversed(above):
        match = _KEY.match(text)
        if match is not None and len(match[1]) < indent:
            path.insert(0, match[2])
            indent = len(match[1])
    return ".".join(path)


def _below(typed: str, section: str, dialect: str, role: str) -> list[Offer]:
    found: dict[str, str] = {}
    start = len(section) + 1 if section else 0
    for key, entry in sorted(index_of(dialect, role).items()):
        if key.startswith(typed) and (not section or key.startswith(f"{section}.")):
            part, dot, _ = key[start:].partition(".")
            found.setdefault(part, "a section" if dot else _about(entry.fact))
    return [Offer(label, about) for label, about in found.items()]


def _about(fact: str) -> str:
    return FACTS[fact].doc if fact in FACTS else ""
