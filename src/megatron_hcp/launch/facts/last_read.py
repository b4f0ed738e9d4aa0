"""What was read of each upstream project, and when: last_read.txt, the only place that says so."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache

from megatron_hcp.ground.record import NamedTuple

_FILE = os.path.join(os.path.dirname(__file__), "last_read.txt")
BRANCHES = ("main", "dev")


class LastRead(NamedTuple):
    """The newest release, or the state of a branch, that was read of a project.

    `package` is the fact that states the project's version, `project` its name in the sources of rules. `date` is that
    of the release or commit, "" if it is unknown; `read_on` is the day of the reading. Both as 2026-11-22.
    """

    package: str
    project: str
    revision: str
    """`release`, or the branch."""
    version: str
    commit: str
    """Of a branch; empty for a release."""
    date: str
    read_on: str

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(map(int, self.version.split(".")))

    def __str__(self) -> str:
        """`2.20.2, 2026-10-05`, or `main (0.20.0), d98e8a64dd of 2026-08-22`."""
        if self.revision == "release":
            return f"{self.version}, {self.date}" if self.date else self.version
        return f"{self.revision} ({self.version}), {self.commit[:10]} of {self.date}"


def parse(text: str) -> tuple[LastRead, ...]:
    """The rows of such a file.

    >>> str(parse("te transformer-engine release 2.20.2 - 2026-10-05 2026-11-22")[0])
    '2.20.2, 2026-10-05'
    """
    rows = (line.split() for line in text.splitlines() if line and not line.startswith("#"))
    return tuple(LastRead(*("" if word == "-" else word for word in row)) for row in rows)


def written(text: str, rows: Iterable[LastRead]) -> str:
    """The file's text with other rows below its comment."""
    comment = [line for line in text.splitlines() if line.startswith("#")]
    return "\n".join([*comment, *(" ".join(word or "-" for word in row) for row in rows), ""])


@cache
def last_read() -> tuple[LastRead, ...]:
    """Every row, a project's release before its branches."""
    with open(_FILE, encoding="utf-8") as file:
        return parse(file.read())


def of_package(package: str, revision: str = "release") -> LastRead | None:
    """What was read of a package's releases, or of a branch; None if nothing was."""
    return next((row for row in last_read() if (row.package, row.revision) == (package, revision)), None)
