"""Whether a tree of upstream's code still says what a source cites. Found by name and content, not by line."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Literal

from megatron_hcp.ground.below import file_below
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import read_regular
from megatron_hcp.rules.rule import Source

AnchorStatus = Literal["holds", "moved", "changed", "gone", "unverified here"]


def status_of(source: Source, folder: Path) -> tuple[AnchorStatus, str]:
    """The state of a source in a tree, and where it is now or what is wrong."""
    # A repository may keep under src/ what its wheel has at the top level.
    bare = source.path.removeprefix("src/")
    try:
        # Links are followed: an installer may have filled the package's folder with links to its cache.
        places = (file_below(str(folder), name, "a source file", follow=True) for name in (bare, f"src/{bare}"))
        file = next((Path(place) for place in places if place), None)
    except HcpError as error:
        return "gone", error.fault
    if file is None:
        return "gone", f"no file {source.path}"
    segment = segment_of(file, source.qualname)
    if segment is None:
        name = source.qualname.rpartition(".")[2]
        elsewhere = [qualname for qualname in _segments(file) if qualname.rpartition(".")[2] == name]
        if elsewhere:
            return "moved", f"{source.qualname} is now {elsewhere[0]}"
        if source.contains and source.contains in _text(file):
            return "moved", f"{source.contains!r} is elsewhere in {source.path}"
        return "gone", f"no {source.qualname} in {source.path}"
    if source.contains and source.contains not in segment:
        return "changed", f"{source.qualname} lacks {source.contains!r}"
    if source.absent and source.absent in segment:
        return "changed", f"{source.qualname} has {source.absent!r} now"
    return "holds", ""


def segment_of(file: Path, qualname: str) -> str | None:
    """The text of a function or class by its dotted name; the whole file if the name is empty or it is not Python."""
    if not qualname or qualname == "<module>" or file.suffix != ".py":
        return _text(file)
    return _segments(file).get(qualname)


@lru_cache(maxsize=512)
def _segments(file: Path) -> dict[str, str]:
    text = _text(file)
    lines = text.splitlines(keepends=True)
    found: dict[str, str] = {}
    for name, first, last in definitions_in(text):
        # A name defined twice (under if/else) stands for all its definitions.
        found[name] = found.get(name, "") + "".join(lines[first - 1 : last])
    return found


def definitions_in(code: str | bytes) -> Iterator[tuple[str, int, int]]:
    """Qualified name, first and last line of each class and function, outer ones first; none of what is not Python."""
    try:
        queue: list[tuple[str, ast.AST]] = [("", ast.parse(code))]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for outer, node in queue:
        for child in ast.iter_child_nodes(node):
            name = outer
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{outer}.{child.name}".lstrip(".")
                yield name, child.lineno, child.end_lineno or child.lineno
            queue.append((name, child))


def _text(file: Path) -> str:
    """The text of a source file, with undecodable bytes replaced.

    Raises:
        HcpError: it cannot be read, or is larger than a source file can be.
    """
    return read_regular(file, "a source file of upstream").decode("utf-8", "replace")
