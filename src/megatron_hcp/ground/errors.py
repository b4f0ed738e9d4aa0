"""The exception for unusable user input."""

from __future__ import annotations

import re
from typing import NamedTuple

_PLACE = re.compile(r"(?P<file>[^:\s][^:]*):(?P<line>[1-9]\d{0,8}):(?:(?P<column>[1-9]\d{0,8}):)? ")


class ErrorParts(NamedTuple):
    """The parts of an error's line; a missing part is empty."""

    found: str
    expected: str
    do: str
    location: tuple[str, int, int | None] | None
    """File, line, and column if known."""


class HcpError(Exception):
    """A user's mistake in one line: what was found, what was wanted, what to do. The command line exits with 2.

    A wrong but readable configuration is a finding, not an error; our own bugs are caught by `assert`.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))

    @property
    def parts(self) -> ErrorParts:
        """The line's parts: `found X; wanted Y; do Z`, with an optional location before it."""
        return parts_of(str(self))


class UnrecognisedError(HcpError):
    """A file that was read, and is no launch of a supported framework. One that may hide a launch is an `HcpError`."""


class NotPlainError(HcpError):
    """A YAML text without a mistake, which has more than a launch needs: several documents, tags, too many values."""


def parts_of(line: str) -> ErrorParts:
    """The parts of an error's line.

    >>> parts_of("a.yaml:3:5: found x; wanted a number; correct it")
    ErrorParts(found='x', expected='a number', do='correct it', location=('a.yaml', 3, 5))
    """
    place = _PLACE.match(line)
    said = line[place.end() :] if place else line
    location = (place["file"], int(place["line"]), int(place["column"]) if place["column"] else None) if place else None
    found, wanted, rest = said.partition("; wanted ")
    if not wanted:
        found, wanted, rest = said.partition(": wanted ")
    if wanted:
        expected, _, do = rest.partition("; ")
    else:
        expected = ""
        found, _, do = said.rpartition("; ") if "; " in said else (said, "", "")
    return ErrorParts(found.removeprefix("found "), expected, do, location)
