"""The tables of corrections and of components: which exceptions a row is about, whether a restart would meet them, and
what to change; which part of the software an exception comes from; how a missing module is installed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple


class Correction(NamedTuple):
    """Of the exceptions whose text has this shape: why the same launch would fail again, and what to change.

    corrections.txt says what the fields mean.
    """

    shape: re.Pattern[str]
    code: re.Pattern[str] | None
    where: re.Pattern[str] | None
    signature: str
    why: str
    later: bool
    """Whether `why` holds after training steps too."""
    step: str
    is_alone: bool
    is_instead: bool


@cache
def corrections() -> tuple[Correction, ...]:
    """The rows, in order; read where a failure is to be explained."""
    return tuple(map(_row, records("corrections.txt")))


def records(name: str) -> Iterator[dict[str, str]]:
    """The records of a table beside this module: fields by their names, records apart by an empty line."""
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        for block in file.read().split("\n\n"):
            lines = [line for line in block.splitlines() if not line.startswith("#")]
            if lines:
                yield {field: value for field, _, value in (line.partition(": ") for line in lines)}


def _row(said: dict[str, str]) -> Correction:
    names = rf"^(?:[\w.]{{0,80}}\.)?(?:{said['raises']})\b(?: ?: ?)?" if "raises" in said else ""
    code, where = said.get("code"), said.get("where")
    return Correction(
        re.compile(names + said.get("text", "")),
        re.compile(code) if code else None,
        re.compile(where) if where else None,
        said.get("signature", ""),
        said.get("why") or said.get("why at first", ""),
        "why at first" not in said,
        said.get("do", ""),
        "alone" in said or "instead" in said,
        "instead" in said,
    )


_PLUMBING = re.compile(
    r"torch/(?:nn/modules/module|_ops|utils/_contextlib|autograd|distributed/elastic)|"
    r"python3\.\d{1,2}/(?!(?:site|dist)-packages)|torch/_utils\.py|<frozen|<string>|concurrent/futures|runpy|importlib"
)
"""Frames that every call passes."""
_NEAREST = 4


@cache
def _components() -> list[tuple[re.Pattern[str], str, str]]:
    return [
        (re.compile(said["frame"]), said["part"], said["look"]) for said in records("components.txt") if "part" in said
    ]


def is_plumbing(frame: str) -> bool:
    """Whether a frame says nothing of where an exception comes from."""
    return _PLUMBING.search(frame) is not None


def component_of(frames: tuple[str, ...]) -> tuple[str, str] | None:
    """The part and what to look at there, by the frames nearest to an exception, the innermost first."""
    for frame in [frame for frame in frames if not is_plumbing(frame)][:_NEAREST]:
        if found := next(((part, look) for pattern, part, look in _components() if pattern.search(frame)), None):
            return found
    return None


def install_text(module: str) -> str:
    """How a missing module gets into the job's environment; by its name, or the longest part of it that is known."""
    known = next(said for said in records("components.txt") if "part" not in said)
    parts = module.split(".")
    for count in range(len(parts), 0, -1):
        if found := known.get(".".join(parts[:count])):
            return f"{found} (in the environment that the job runs in, on every node)"
    if len(parts) > 1:
        return (
            f"the installed {parts[0]} has no {module}: install the release that has it (pip show {parts[0]}), or, if "
            "it is your own, put its folder on PYTHONPATH"
        )
    return (
        f"pip install {module.replace('_', '-')} in the environment that the job runs in, on every node; if {module} "
        "is a folder of your own, put its parent on PYTHONPATH"
    )
