"""What follows a dollar sign, as far as it can be read from the text alone: `$x`, `${…}` and `$((…))`."""

from __future__ import annotations

import re

from megatron_hcp.bash.syntax import ArithmeticExpansion, NotUnderstood, Parameter, Piece, Quoting, Text

_LOOSE = re.compile(rb"(?s)\\.|\$(?:\{(\w+)\}|([A-Za-z_]\w*|[0-9])|\()|`")
_BACKSLASH, _OPEN, _CLOSE = b"\\()"
_PARAMETER = re.compile(
    rb"\$\{(#(?=[A-Za-z_@*0-9])|!)?([A-Za-z_]\w*|[0-9]+|[@*#?$!-])(?:\[((?:[^\[\]]|\[[^\]]*\])*)\])?"
    rb"(:[-=+?]?|[-=+?@]|##?|%%?|//?|\^\^?|,,?)?"
)


def text(data: bytes, start: int, end: int, quoting: Quoting) -> list[Piece]:
    """The bytes [start, end) as text, with each `$x` and `$((…))` in it expanded; a command in it isn't understood."""
    pieces: list[Piece] = []
    place = start
    while quoting != "raw" and (match := _LOOSE.search(data, place, end)):
        place = match.end()
        if place == match.start() + 2 and data[match.start()] == _BACKSLASH:
            continue
        if start < match.start():
            pieces.append(Text(start, match.start(), quoting))
        if name := match[1] or match[2]:
            pieces.append(Parameter(*match.span(), name.decode()))
            start = place
            continue
        close = arithmetic_end(data, match.start(), end)
        if close is None or data.find(b"$(", place + 1, close) >= 0:
            return [*pieces, NotUnderstood(match.start(), end, ())]
        pieces.append(ArithmeticExpansion(match.start(), close, text(data, place + 1, close - 2, "string")))
        start = place = close
    if start < end:
        pieces.append(Text(start, end, quoting))
    return pieces


def arithmetic_end(data: bytes, start: int, end: int) -> int | None:
    """Where the `$((…))` that starts here ends; None where it is a command substitution, as `$((a) | b)` is."""
    if not data.startswith(b"$((", start):
        return None
    depth = 0
    for place in range(start + 1, end):
        depth += {_OPEN: 1, _CLOSE: -1}.get(data[place], 0)
        if depth == 1 and place > start + 2:
            return place + 2 if data[place + 1 : place + 2] == b")" and place + 1 < end else None
    return None


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
