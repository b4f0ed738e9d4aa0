"""Findings accepted by the launch: the comment `# hcp: ignore=RULE reason` beside a key."""

from __future__ import annotations

import re
from collections.abc import Sequence

from megatron_hcp.ground.place import Location
from megatron_hcp.launch.fact import Acceptance

_ONE = r"[A-Za-z]+[0-9]+(?:(?:/[\w.-]+)+)?"
IGNORE = rf"(?:^|\s)#+\s*hcp:\s*ignore\s*=\s*(?P<rules>{_ONE}(?:,{_ONE})*)(?P<reason>[^\n]*)"
"""In one line of text. `rules` may name several, joined by commas without spaces."""


def acceptances_of(text: str, file: str) -> tuple[Acceptance, ...]:
    """The accepted findings of a YAML or override file. A missing reason is "": the engine doesn't accept it.

    >>> [(a.rule, a.reason) for a in acceptances_of("a: 1  # hcp: ignore=TOPO001 measured, no slower", "x.yaml")]
    [('TOPO001', 'measured, no slower')]
    """
    if "hcp:" not in text:
        return ()
    lines = text.splitlines()
    return tuple(one for number in range(1, len(lines) + 1) for one in acceptances_in(lines, file, number))


def _id(text: str) -> str:
    """A rule's id in upper case; after it, the guard of a START rule as it is written."""
    rule, slash, guard = text.partition("/")
    return f"{rule.upper()}{slash}{guard}"


def acceptances_in(lines: Sequence[str], file: str, number: int, continues: str = "") -> list[Acceptance]:
    """The accepted findings in one line of a file; `number` is 1-based.

    They cover the next line too. A comment above a command whose lines end in `continues` covers all of them, since no
    comment can stand inside.
    """
    line = lines[number - 1]
    match = re.search(IGNORE, line)
    if match is None:
        return []
    start = line.index("#", match.start()) + 1
    place = Location(file, number, start, number, len(line.rstrip()) + 1)
    last = number + 1
    while line.lstrip()[:1] == "#" and last < len(lines) and _goes_on(lines[last - 1], continues):
        last += 1
    return [Acceptance(_id(rule), match["reason"].strip(" \t:,-"), place, last) for rule in match["rules"].split(",")]


def _goes_on(line: str, continues: str) -> bool:
    """Whether what a comment stands above goes on after this line: further comments, and a command's own lines."""
    return line.lstrip()[:1] == "#" or bool(continues and line.rstrip("\r").endswith(continues))
