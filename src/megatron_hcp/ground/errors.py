"""The exception for unusable user input."""

from __future__ import annotations

from typing import Any


class HcpError(Exception):
    """A user's mistake, printed as one line: `PLACE: found; wanted …; do`. The command line exits with 2.

    A wrong but readable configuration is a finding, not an error; our own bugs are caught by `assert`.

    Attributes:
        found: what is wrong; with a colon at its end, the line goes on without a semicolon.
        wanted: what is accepted; empty if that follows from `found`.
        do: what helps; empty if that follows from `wanted`.
        at: file and line, and the column if known.
    """

    def __init__(
        self, found: str, *, wanted: str = "", do: str = "", at: tuple[str, int] | tuple[str, int, int] | None = None
    ) -> None:
        self.found, self.wanted, self.do = (" ".join(part.split()) for part in (found, wanted, do))
        self.at = at
        super().__init__(self.found)

    def __str__(self) -> str:
        line = self.fault
        for part in (self.wanted and f"wanted {self.wanted}", self.do):
            if part:
                line += (" " if line.endswith(":") else "; ") + part
        return line

    @property
    def fault(self) -> str:
        """Where it is, and what was found."""
        place = "".join(f"{part}:" for part in self.at or ())
        return " ".join(f"{place} {self.found}".split())

    def within(self, whole: str) -> HcpError:
        """The same error, with what contains it before what was found."""
        return HcpError(f"{whole} {self.found}", wanted=self.wanted, do=self.do, at=self.at)


class UnrecognisedError(HcpError):
    """A file that was read, and is no launch of a supported framework. One that may hide a launch is an `HcpError`."""


class NotPlainError(HcpError):
    """A YAML text without a mistake, which has more than a launch needs: several documents, tags, too many values."""


def error_json(error: HcpError, target: str | None = None) -> dict[str, Any]:
    """The error for an input that could not be used, as JSON; `target` names it if there are several."""
    file, line, column = (*(error.at or (None, None)), None)[:3]
    return {
        "schema": "hcp.error/1",
        "ok": False,
        **({} if target is None else {"target": {"name": target}}),
        "error": {
            "found": error.found.removeprefix("found ").removesuffix(":"),
            "expected": error.wanted,
            "do": error.do,
            "location": {"file": file, "line": line, "column": column} if error.at else None,
        },
    }
