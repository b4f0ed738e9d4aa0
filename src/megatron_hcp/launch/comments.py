"""Findings accepted by the launch: the comment `# hcp: ignore=RULE reason` beside a key."""

from __future__ import annotations

import re

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
    found: list[Acceptance] = []
    for number, line in enumerate(text.splitlines(), 1):
        found += acceptances_in(line, file, number)
    return tuple(found)


def _id(text: str) -> str:
    """A rule's id in upper case; after it, the guard of a START rule as it is written."""
    rule, slash, guard = text.partition("/")
    return f"{rule.upper()}{slash}{guard}"


def acceptances_in(line: str, file: str, number: int) -> list[Acceptance]:
    """The accepted findings in one line of a file; `number` is 1-based."""
    match = re.search(IGNORE, line)
    if match is None:
        return []
    start = line.index("#", match.start()) + 1
    place = Location(file, number, start, number, len(line.rstrip()) + 1)
    return [Acceptance(_id(rule), match["reason"].strip(" \t:,-"), place) for rule in match["rules"].split(",")]
