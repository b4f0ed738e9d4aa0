"""The exception that means: the user's input could not be used."""

from __future__ import annotations

import re
from typing import NamedTuple

_PLACE = re.compile(r"(?P<file>[^:\s][^:]*):(?P<line>[1-9]\d{0,8}):(?:(?P<column>[1-9]\d{0,8}):)? ")


class ErrorParts(NamedTuple):
    """What an error's line says, one by one; a part that the line does not have is empty."""

    found: str
    expected: str
    do: str
    location: tuple[str, int, int | None] | None
    """File, line, and column where it is known."""


class HcpError(Exception):
    """A user's fault in one line: what was found, what was wanted, what to do. The command line exits with 2.

    A wrong but readable configuration is a finding, not an error; a fault of ours is an `assert`.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))

    @property
    def parts(self) -> ErrorParts:
        """The line's parts: `found X; wanted Y; do Z`, with a place before it or not."""
        return parts_of(str(self))


class UnrecognisedError(HcpError):
    """A file that was read, and is no launch of a supported framework. One that may hide a launch is an `HcpError`."""


def parts_of(line: str) -> ErrorParts:
    """What an error's line says, one by one.

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
