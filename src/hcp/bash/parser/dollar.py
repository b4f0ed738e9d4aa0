"""What follows a dollar sign, as far as it can be read from the text alone: `$x` and `${…}`."""

from __future__ import annotations

import re

from hcp.bash.syntax import Parameter, Piece, Quoting, Text

_LOOSE = rb"(?s)\\.|\$(?:\{(\w+)\}|([A-Za-z_]\w*|[0-9]))"
_PARAMETER = re.compile(
    rb"\$\{(#(?=[A-Za-z_@*0-9])|!)?([A-Za-z_]\w*|[0-9]+|[@*#?$!-])(?:\[((?:[^\[\]]|\[[^\]]*\])*)\])?"
    rb"(:[-=+?]?|[-=+?@]|##?|%%?|//?|\^\^?|,,?)?"
)


def text(data: bytes, start: int, end: int, quoting: Quoting) -> list[Piece]:
    """The bytes [start, end) as text, with each `$x` in it as a parameter."""
    pieces: list[Piece] = []
    if quoting != "raw" and data.find(b"$", start, end) >= 0:
        for match in re.compile(_LOOSE).finditer(data, start, end):
            if name := match[1] or match[2]:
                if start < match.start():
                    pieces.append(Text(start, match.start(), quoting))
                pieces.append(Parameter(*match.span(), name.decode()))
                start = match.end()
    if start < end:
        pieces.append(Text(start, end, quoting))
    return pieces


def parameter(data: bytes, start: int, end: int) -> tuple[Parameter, int] | None:
    """`$x` or `${…}`, still without its operand, and where that starts; None where it is not understood."""
    if not data.startswith(b"${", start):
        return Parameter(start, end, data[start + 1 : end].decode("utf-8", "replace")), end
    match = _PARAMETER.match(data, start, end)
    if match is None or (match[4] is None and match.end() != end - 1):
        return None
    found = Parameter(start, end, match[2].decode())
    found.prefix, found.operator = (match[1] or b"").decode(), (match[4] or b"").decode()
    if match[3] is not None:
        found.subscript = match[3].decode("utf-8", "replace")
    return found, match.end()
