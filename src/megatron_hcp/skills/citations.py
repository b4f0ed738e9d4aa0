"""What a skill's text cites from a source tree: fences that name lines of a file, and paths in code spans.

Skills without a card cite code this way. A line number is wrong after the file's next edit; so this module searches
for the quoted lines, and suggests the enclosing function as an anchor that lasts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from megatron_hcp.ground.below import file_below
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import read_regular
from megatron_hcp.judge.anchored import definitions_in
from megatron_hcp.skills.card import read_skill_file
from megatron_hcp.skills.markdown import blocks_in, without_blocks
from megatron_hcp.skills.skill import files_of

CitationStatus = Literal["right", "moved", "drifted", "gone", "unverified here"]
CITATION_STATUSES: tuple[CitationStatus, ...] = get_args(CitationStatus)
_CITING = re.compile(r"(\d{1,7}):(\d{1,7}):(\S+)")
_SPAN = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|sh|ya?ml|json|md|toml|cu|cpp|h))(?::(\d{1,7})(?:-(\d{1,7}))?)?`")
_WANTED = "a source file"
_ELIDED = re.compile(r"^(#|//)?\s*(\.\.\.|…)")


class Citation(NamedTuple):
    """A citation: the skill's file and line; the cited path, its lines, and the text quoted in a fence."""

    file: str
    line: int
    path: str
    first: int | None = None
    last: int | None = None
    quoted: tuple[str, ...] = ()


class CitationVerdict(NamedTuple):
    """Whether a source tree still has what is cited; `anchor` is a form that lasts, `path::qualname`."""

    citation: Citation
    status: CitationStatus
    detail: str = ""
    anchor: str = ""


def citations_of(folder: Path) -> list[Citation]:
    """Every citation in the Markdown of a skill, in order.

    Raises:
        HcpError: a file of the skill cannot be read.
    """
    found = []
    for name in files_of(folder):
        if name.endswith(".md"):
            text = read_skill_file(folder, name, "a text of the skill").replace("\r\n", "\n")
            found += sorted(_in_text(name, text), key=lambda citation: citation.line)
    return found


def _in_text(file: str, text: str) -> Iterator[Citation]:
    for block in blocks_in(text):
        match = _CITING.fullmatch(block.info)
        if match:
            yield Citation(file, block.line, match[3], int(match[1]), int(match[2]), block.lines)
    for number, line in enumerate(without_blocks(text).split("\n"), 1):
        for match in _SPAN.finditer(line):
            first = int(match[2]) if match[2] else None
            yield Citation(file, number, match[1], first, int(match[3]) if match[3] else first)


def verdict_of(citation: Citation, repos: Mapping[str, Path]) -> CitationVerdict:
    """Looks for the citations in the checkouts, by name; the first checkout with the file decides."""
    if not repos:
        return CitationVerdict(citation, "unverified here", "no checkout was given")
    for name, root in repos.items():
        try:
            path = _file_in(root, citation.path)
            if path is not None:
                return _in_file(citation, name, root, path)
        except HcpError as error:
            return CitationVerdict(citation, "gone", str(error))
    top = citation.path.split("/")[0]
    if top in (".", "..") or not any((root / top).is_dir() for root in repos.values()):
        return CitationVerdict(citation, "unverified here", f"{', '.join(repos)} has no folder {top}")
    return CitationVerdict(citation, "gone", f"no such file in {', '.join(repos)}")


def _file_in(root: Path, cited: str) -> str | None:
    """The cited file's path in a checkout: as written, or without leading folders (`3rdparty/Megatron-LM/`)."""
    parts = cited.split("/")
    if ".." in parts or cited.startswith("/"):
        return None
    tails = ["/".join(parts[start:]) for start in range(len(parts) - 1)]
    return next((tail for tail in tails if file_below(str(root), tail, _WANTED)), None)


def _in_file(citation: Citation, repo: str, root: Path, path: str) -> CitationVerdict:
    lines = read_regular(root / path, _WANTED).decode("utf-8", "replace").splitlines()
    if not citation.quoted:
        if citation.last is not None and citation.last > len(lines):
            return CitationVerdict(citation, "drifted", f"{repo} {path} has {len(lines)} lines")
        return CitationVerdict(citation, "right")
    wanted = [line.strip() for line in citation.quoted if line.strip() and not _ELIDED.match(line.strip())]
    there = [line.strip() for line in lines]
    at = _place(wanted, there)
    if at is None:
        kept = sum(line in there for line in wanted)
        status: CitationStatus = "drifted" if kept else "gone"
        first = next((there.index(line) for line in wanted if line in there), None)
        anchor = _anchor(root / path, path, first) if first is not None else ""
        return CitationVerdict(citation, status, f"{repo} {path} has {kept} of {len(wanted)} quoted lines", anchor)
    anchor = _anchor(root / path, path, at[0])
    if citation.first == at[0] + 1 and citation.last is not None and at[1] + 1 <= citation.last:
        return CitationVerdict(citation, "right", anchor=anchor)
    return CitationVerdict(citation, "moved", f"{repo} {path}: lines {at[0] + 1} to {at[1] + 1}", anchor)


def _place(wanted: Sequence[str], there: Sequence[str]) -> tuple[int, int] | None:
    """The first and last index of the quoted lines in the file, in order and as close together as possible."""
    best = None
    for start in (index for index, line in enumerate(there) if wanted and line == wanted[0]):
        index = start
        for line in wanted[1:]:
            index = next((later for later in range(index + 1, len(there)) if there[later] == line), -1)
            if index < 0:
                break
        if index >= 0 and (best is None or index - start < best[1] - best[0]):
            best = (start, index)
    return best


def _anchor(file: Path, path: str, index: int) -> str:
    """The innermost class or function around a line of a Python file."""
    if not path.endswith(".py"):
        return path
    inner = ""
    for name, first, last in _definitions(file, os.stat(file).st_mtime_ns):
        if first <= index + 1 <= last:
            inner = name
    return f"{path}::{inner}" if inner else path


@lru_cache(maxsize=64)
def _definitions(file: Path, changed_ns: int) -> tuple[tuple[str, int, int], ...]:
    """Those of a file; found again when it has changed."""
    return tuple(definitions_in(read_regular(file, _WANTED)))
