"""Blocks of code in Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_FENCES = ("```", "~~~")


class CodeBlock(NamedTuple):
    """A fenced block: the line of its opening fence, counted from 1, what stands behind the fence, and its lines."""

    line: int
    info: str
    lines: tuple[str, ...]


def blocks_in(text: str) -> Iterator[CodeBlock]:
    """The fenced blocks of a text. One that is never closed is none.

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
    """The text with its fenced blocks emptied; lines keep their numbers."""
    lines = text.splitlines()
    for block in blocks_in(text):
        for number in range(block.line - 1, block.line + len(block.lines) + 1):
            lines[number] = ""
    return "\n".join(lines)


def _run(text: str, character: str) -> int:
    """How often the character stands at the start."""
    return len(text) - len(text.lstrip(character))
