"""A file's text in pieces, so that of a large one only the definitions are parsed that are asked for."""

from __future__ import annotations

import re

_DEFINES = re.compile(r"(?:async )?(?:def|class) (\w+)")
_GOES_ON = (" ", "\t", "\n", "\r", "#", ")", "]", "}")
"""How a line begins that belongs to the statement above it."""


def pieces_of(text: str) -> tuple[str, dict[str, str]] | None:
    """(all but the definitions at the top of a file, the text of each definition with its decorators, by its name).

    None where a text over several lines may be cut: then the file is parsed whole.
    """
    rest: list[str] = []
    found: dict[str, str] = {}
    piece: list[str] = []
    name = ""
    for line in [*text.splitlines(keepends=True), "end"]:
        if line.startswith(_GOES_ON) or (piece and not name and piece[0][0] == "@"):
            piece.append(line)
            if not name and (defined := _DEFINES.match(line)):
                name = defined[1]
            continue
        whole = "".join(piece)
        if whole.count('"""') % 2 or whole.count("'''") % 2:
            return None
        if name:
            found[name] = whole
        else:
            rest.append(whole)
        defined = _DEFINES.match(line)
        piece, name = [line], defined[1] if defined else ""
    return "".join(rest), found
