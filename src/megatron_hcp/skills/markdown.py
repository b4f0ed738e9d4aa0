"""Code blocks in Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_FENCES = ("```", "~~~")


class CodeBlock(NamedTuple):
    """A fenced block: the line of its opening fence (1-based), the info string, and its lines."""

    line: int
    info: str
    lines: tuple[str, ...]


def blocks_in(text: str) -> Iterator[CodeBlock]:
    """The fenced blocks of a text; an unclosed one does not count.

    >>> list(blocks_in("a\\n```sh\\nls\\n```\\n"))
    [CodeBlock(line=2, info='sh', lines=('ls',))]
    """
    opened, fence, inside = 0, "", list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not fence:
            mark = next((mark for mark in _FENCES if stripped.startswith(mark)), "")
            if mark:
                fence = mark + stripped[len(mark) :][: _run(stripped[len(mark) :], mark[0])]
                opened, info, inside = number, stripped[len(fence) :].strip(), []
        elif stripped == fence:
            yield CodeBlock(opened, info, tuple(inside))
            fence = ""
        else:
            inside.append(line)


def without_blocks(text: str) -> str:
    """The text with its fenced blocks blanked; line numbers do not change."""
    lines = text.splitlines()
    for block in blocks_in(text):
        for number in range(block.line - 1, block.line + len(block.lines) + 1):
            lines[number] = ""
    return "\n".join(lines)


def _run(text: str, character: str) -> int:
    """How many times the character is repeated at the start."""
    return len(text) - len(text.lstrip(character))
