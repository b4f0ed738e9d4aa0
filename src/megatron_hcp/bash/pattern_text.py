"""How patterns are written: shell patterns (globs) and extended regular expressions, as nodes of `bash.pattern`."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable

from megatron_hcp.bash.arith import Undecidable
from megatron_hcp.bash.pattern import END, START, Chain, Choice, Node, Star, Takes

_MAX_TIMES = 255
_LONGEST = 1000
_MAX_DEPTH = 40
_CLASSES: dict[str, Callable[[str], bool]] = {
    "alpha": str.isalpha,
    "digit": lambda char: char in "0123456789",
    "alnum": str.isalnum,
    "space": lambda char: char in " \t\n\r\v\f",
    "blank": lambda char: char in " \t",
    "upper": str.isupper,
    "lower": str.islower,
    "punct": lambda char: char in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    "xdigit": lambda char: char in "0123456789abcdefABCDEF",
}
_CLASS = re.compile(r"\[:([a-z]{1,10}):\]")
_TIMES = re.compile(r"\{(\d{1,3})(,?)(\d{0,3})\}")


def literal(text: str) -> list[Node]:
    """Characters that stand for themselves."""
    if len(text) > _LONGEST:
        raise Undecidable("a pattern is too long to try")
    return [_is(char) for char in text]


def glob(text: str) -> list[Node]:
    """A shell pattern: `*`, `?`, `[…]`, and backslashes that quote.

    >>> from megatron_hcp.bash.pattern import Pattern
    >>> Pattern(glob("a*.p[yx]")).matches("ab.py"), Pattern(glob("[!a]?")).matches("ab")
    (True, False)
    """
    if len(text) > _LONGEST:
        raise Undecidable("a pattern is too long to try")
    nodes: list[Node] = []
    place = 0
    while place < len(text):
        char = text[place]
        place += 1
        if char == "*":
            if text[place - 2 : place] != "**" or not isinstance(nodes[-1], Star):
                nodes.append(Star(_any))
        elif char == "?":
            nodes.append(_any)
        elif char == "\\" and place < len(text):
            nodes += literal(text[place])
            place += 1
        elif char == "[" and (bracket := _bracket(text, place, "!^")) is not None:
            nodes.append(bracket[0])
            place = bracket[1]
        else:
            nodes += literal(char)
    return nodes


def regex(text: str) -> list[Node]:
    """An extended regular expression, as `=~` takes it.

    >>> from megatron_hcp.bash.pattern import Pattern
    >>> Pattern(regex("^(a|b)+$")).is_in("abba"), Pattern(regex("^[0-9]{2,3}$")).is_in("1")
    (True, False)

    Raises:
        Undecidable: it is invalid, or its meaning differs between systems.
    """
    if len(text) > _LONGEST:
        raise Undecidable("a pattern is too long to try")
    nodes, place = _alternatives(text, 0, 0)
    if place != len(text):
        raise Undecidable("a regular expression is not understood")
    return [nodes]


def _alternatives(text: str, place: int, depth: int) -> tuple[Node, int]:
    """The node up to a closing parenthesis or the end, and the place of that."""
    ways: list[Node] = []
    nodes: list[Node] = []
    while place < len(text) and text[place] != ")":
        if text[place] == "|":
            ways.append(Chain(nodes))
            nodes = []
            place += 1
            continue
        node, place, may_repeat = _atom(text, place, depth)
        times = 0
        while place < len(text) and text[place] in "*+?{":
            times += 1
            if not may_repeat or times > 3:
                raise Undecidable("a regular expression is not understood")
            node, place = _repeated(node, text, place)
        nodes.append(node)
    ways.append(Chain(nodes))
    return (Choice(ways) if len(ways) > 1 else ways[0]), place


def _atom(text: str, place: int, depth: int) -> tuple[Node, int, bool]:
    """The node at a place, where it ends, and whether it may be repeated."""
    char = text[place]
    if char == "(" and depth < _MAX_DEPTH:
        inner, end = _alternatives(text, place + 1, depth + 1)
        if text[end : end + 1] == ")":
            # Libraries differ on an anchor inside a repetition.
            return inner, end + 1, not {"^", "$"} & set(text[place:end].replace("[^", ""))
    elif char == "[" and (bracket := _bracket(text, place + 1, "^")) is not None:
        return bracket[0], bracket[1], True
    elif char in "^$":
        return _is(START if char == "^" else END), place + 1, False
    elif char not in "*+?{([\\":
        return (_any if char == "." else _is(char)), place + 1, True
    raise Undecidable("a regular expression is not understood")


def _repeated(node: Node, text: str, place: int) -> tuple[Node, int]:
    sign = text[place]
    if sign != "{":
        ways: dict[str, Node] = {"*": Star(node), "+": Chain((node, Star(node))), "?": Choice((node, Chain(())))}
        return ways[sign], place + 1
    match = _TIMES.match(text, place)
    least, most = (int(match[1]), int(match[3] or -1) if match[2] else int(match[1])) if match else (0, 0)
    if match is None or least > _MAX_TIMES or most > _MAX_TIMES or (match[3] and most < least):
        raise Undecidable("a regular expression is not understood")
    copies: list[Node] = [node] * least
    copies += [Star(node)] if most < 0 else [Choice((node, Chain(())))] * (most - least)
    return Chain(copies), match.end()


def _is(wanted: str) -> Takes:
    return lambda symbol: symbol == wanted


def _any(symbol: str) -> bool:
    return len(symbol) == 1


def _bracket(text: str, place: int, negations: str) -> tuple[Takes, int] | None:
    """`[…]` after its `[`, and where it ends; None if it is not closed, which makes `[` a plain character."""
    negated = text[place : place + 1] in negations and place < len(text)
    start = place = place + negated
    singles: list[str] = []
    ranges: list[tuple[str, str]] = []
    tests: list[Takes] = []
    while place < len(text) and (text[place] != "]" or place == start):
        named = _CLASS.match(text, place)
        if named is not None and named[1] in _CLASSES:
            if _CLASSES[named[1]] not in tests:
                tests.append(_CLASSES[named[1]])
            place = named.end()
        elif text[place] == "[" and text[place + 1 : place + 2] in (":", ".", "="):
            raise Undecidable("a pattern depends on the locale")
        elif text[place] == "\\" and "!" in negations and place + 1 < len(text):
            singles.append(text[place + 1])
            place += 2
        elif text[place + 1 : place + 2] == "-" and text[place + 2 : place + 3] not in ("]", ""):
            first, last = text[place], text[place + 2]
            if last < first or last in "[\\":
                raise Undecidable("a pattern has a range that is none")
            ranges.append((first, last))
            place += 3
        else:
            singles.append(text[place])
            place += 1
    if place >= len(text):
        return None
    tests.append(frozenset(singles).__contains__)
    if ranges:
        tests.append(_within(ranges))
    return _one_of(tests, negated), place + 1


def _within(ranges: list[tuple[str, str]]) -> Takes:
    """Whether a character lies in one of the ranges, in steps that grow with the logarithm of their number."""
    merged: list[tuple[str, str]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    starts = [first for first, _ in merged]

    def takes(symbol: str) -> bool:
        at = bisect_right(starts, symbol) - 1
        return at >= 0 and symbol <= merged[at][1]

    return takes


def _one_of(tests: Iterable[Takes], negated: bool) -> Takes:
    return lambda symbol: len(symbol) == 1 and any(test(symbol) for test in tests) != negated
