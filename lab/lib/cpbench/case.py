"""A case of CP-Bench, `hcp.cpbench/1`: one object a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

SCHEMA = "hcp.cpbench/1"


class Case(NamedTuple):
    """A launch, and whether it starts: `expect` is ok or refused.

    `file` is what a tool is shown: one of `files` (name to text), or a path inside `tree`, a checkout that the launch
    reads other files from. `versions` are the releases that its page states, as NAME=VALUE. Of a refusal, `cause` says
    why in words, a tool that means the same prints one of `names`, and `place` is upstream's function that refuses.
    """

    id: str
    source: str
    file: str
    files: dict[str, str] = {}  # noqa: RUF012
    tree: str = ""
    argv: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    expect: str = "ok"
    cause: str = ""
    names: tuple[str, ...] = ()
    place: str = ""

    def row(self) -> str:
        return json.dumps({"schema": SCHEMA, **self._asdict()}, ensure_ascii=False)


def write_cases(file: Path, cases: Iterable[Case]) -> int:
    """How many were written."""
    rows = [case.row() for case in cases]
    file.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return len(rows)


def read_cases(file: Path) -> Iterator[Case]:
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        row: dict[str, Any] = json.loads(line)
        if row.pop("schema", None) != SCHEMA:
            raise ValueError(f"{file}:{number}: found no case of {SCHEMA}")
        for name in ("argv", "versions", "names"):
            row[name] = tuple(row.get(name, ()))
        yield Case(**row)
