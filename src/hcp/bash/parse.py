"""tree-sitter-bash, and the two repairs that its grammar needs."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import tree_sitter_bash
from tree_sitter import Language, Parser

from hcp.bash.value import Source

if TYPE_CHECKING:
    from tree_sitter import Node

_MAX_PASSES = 20
_SEVERAL = re.compile(rb"[A-Za-z_]\w*\+?=(?:\"[^\"\n]*\"|'[^'\n]*'|\([^()\n]*\)|[^\s\"'()])*[ \t]+[A-Za-z_]\w*\+?=")
_parser: Parser | None = None


def parse(source: Source) -> Node:
    """The root of the source's syntax tree. Parsing never fails: what is not understood becomes ERROR nodes.

    Repairs are made in a copy of equal length that only the parser sees; texts are taken from the source.
    """
    global _parser
    if _parser is None:
        _parser = Parser(Language(tree_sitter_bash.language()))
    root = _parser.parse(source.data).root_node
    patched = bytearray(source.data)
    if root.has_error and b"$(((" in source.data and _hide_arithmetic(source, patched):
        root = _parser.parse(bytes(patched)).root_node
    if _SEVERAL.search(source.data):
        for _ in range(_MAX_PASSES):
            ends = _swallowed_ends(root, source.data)
            if not ends:
                break
            for place in ends:
                patched[place] = ord(";")
            root = _parser.parse(bytes(patched)).root_node
    return root


def _swallowed_ends(root: Node, data: bytes) -> list[int]:
    """Where lines of several assignments end that the grammar (0.25) joins with the next line: `A=1 B=2`."""
    ends: list[int] = []
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type != "command":
            stack.extend(node.named_children)
            continue
        children = node.named_children
        for first, second in pairwise(children):
            if first.type != "variable_assignment":
                break
            gap = data[first.end_byte : second.start_byte]
            if b"\n" in gap.replace(b"\\\n", b""):
                ends.append(first.end_byte)
    return ends


def _hide_arithmetic(source: Source, patched: bytearray) -> bool:
    """Stands variables of the same length in for `$(((a + b) * c))`, which the grammar takes for commands.

    The expansion of such a variable finds the arithmetic by `source.repairs`.
    """
    for match in re.finditer(rb"\$\(\(\(", source.data):
        end = _closing(source.data, match.start() + 1)
        if end is not None:
            patched[match.start() : end] = b"${" + b"_" * (end - match.start() - 3) + b"}"
            source.repairs[match.start()] = end
    return bool(source.repairs)


def _closing(data: bytes, start: int) -> int | None:
    """One past the parenthesis that closes the one at `start`; None where a quote or the line's end comes first."""
    depth = 0
    for place in range(start, min(len(data), start + 500)):
        byte = data[place : place + 1]
        if byte in (b'"', b"'", b"`", b"\n"):
            return None
        depth += (byte == b"(") - (byte == b")")
        if depth == 0:
            return place + 1
    return None
