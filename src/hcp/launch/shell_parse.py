"""tree-sitter-bash, and the one repair that its grammar needs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import tree_sitter_bash
from tree_sitter import Language, Parser

from hcp.launch.shell_value import Source

if TYPE_CHECKING:
    from tree_sitter import Node

_parser: Parser | None = None


def parse(source: Source) -> Node:
    """The root of the source's syntax tree. Parsing never fails: what is not understood becomes ERROR nodes."""
    global _parser
    if _parser is None:
        _parser = Parser(Language(tree_sitter_bash.language()))
    root = _parser.parse(source.data).root_node
    if root.has_error and b"$(((" in source.data:
        # The grammar (0.25) takes `$(((a + b) * c))` for a command substitution: a variable of the same length
        # stands in for it, and the expansion of that variable finds the arithmetic in `source.repairs`.
        patched = bytearray(source.data)
        for match in re.finditer(rb"\$\(\(\(", source.data):
            end = _closing(source.data, match.start() + 1)
            if end is not None:
                length = end - match.start()
                patched[match.start() : end] = b"${" + b"_" * (length - 3) + b"}"
                source.repairs[match.start()] = end
        root = _parser.parse(bytes(patched)).root_node
    return root


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
