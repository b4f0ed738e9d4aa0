"""How many steps a regular expression takes, counted by a matcher that goes back as Python's does.

Time cannot be asked for in a test; steps can, and they are the same everywhere. The matcher tries what `re` tries, in
the same order, on the tree that `re` parses.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

if sys.version_info >= (3, 11):
    import re._constants as names
    import re._parser as parser
else:
    import sre_constants as names
    import sre_parse as parser

MOST_STEPS = 300_000
_MANY = 10
"""Times up to which a repetition is not pumped."""
_FEW = 10
"""Steps for each of some 50 characters: what grows with the square takes more."""
_SAMPLES = "a0 _\n-.A/\t"
_SINGLE = {names.LITERAL, names.NOT_LITERAL, names.ANY, names.IN}
_Next = Callable[[int], bool]


class TooManySteps(Exception):
    """More than `MOST_STEPS`."""


class Counted:
    """A pattern whose steps are counted."""

    def __init__(self, pattern: re.Pattern[Any]) -> None:
        self.tree = parser.parse(
            pattern.pattern, pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags
        )
        self.flags = pattern.flags
        self.steps = 0
        self.text: list[int] = []
        self.groups: dict[int, tuple[int, int]] = {}

    def count(self, text: str, how: str) -> int:
        """The steps that `how` (match, fullmatch, search, or finditer for all that go on) takes on a text."""
        self.text, self.steps = [ord(char) for char in text], 0
        start = 0
        while start <= len(self.text):
            end = self._match_at(start, how == "fullmatch")
            if how in ("match", "fullmatch") or (how == "search" and end is not None):
                break
            start = max(start + 1, end or 0)
        return self.steps

    def _match_at(self, start: int, whole: bool) -> int | None:
        ends: list[int] = []

        def accept(place: int) -> bool:
            if whole and place != len(self.text):
                return False
            ends.append(place)
            return True

        self._sequence(self.tree, 0, start, accept)
        return ends[0] if ends else None

    def _step(self) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise TooManySteps

    def _sequence(self, nodes: Any, at: int, place: int, go_on: _Next) -> bool:
        if at == len(nodes):
            return go_on(place)
        self._step()
        kind, value = nodes[at]

        def rest(after: int) -> bool:
            return self._sequence(nodes, at + 1, after, go_on)

        if kind in _SINGLE:
            return self._takes(kind, value, place) and rest(place + 1)
        if kind is names.AT:
            return self._is_at(value, place) and rest(place)
        if kind is names.BRANCH:
            return any(self._sequence(way, 0, place, rest) for way in value[1])
        if kind is names.SUBPATTERN:
            return self._group(value[0], value[-1], place, rest)
        if kind in (names.MAX_REPEAT, names.MIN_REPEAT):
            least, most, body = value
            if len(body) == 1 and body[0][0] in _SINGLE:
                return self._run(body[0], least, most, place, kind is names.MAX_REPEAT, rest)
            return self._rounds(body, least, most, 0, place, kind is names.MAX_REPEAT, rest)
        if kind in (names.ASSERT, names.ASSERT_NOT):
            direction, body = value
            width = body.getwidth()[0] if direction < 0 else 0
            found = place >= width and self._sequence(body, 0, place - width, lambda end: True)
            return found == (kind is names.ASSERT) and rest(place)
        if kind is names.GROUPREF:
            first, last = self.groups.get(value, (0, -1))
            known = self.text[first:last] if last >= first else None
            return known is not None and self.text[place : place + len(known)] == known and rest(place + len(known))
        raise NotImplementedError(kind)

    def _group(self, number: int | None, body: Any, place: int, rest: _Next) -> bool:
        def closed(end: int) -> bool:
            before = self.groups.get(number or 0)
            if number is not None:
                self.groups[number] = (place, end)
            if rest(end):
                return True
            if before is not None:
                self.groups[number or 0] = before
            return False

        return self._sequence(body, 0, place, closed)

    def _run(self, node: Any, least: int, most: int, place: int, greedy: bool, rest: _Next) -> bool:
        """A repeated single character: as many as there are, then back; or the other way round."""
        end = place
        while end - place < (most if greedy else least) and self._takes(node[0], node[1], end):
            self._step()
            end += 1
        if end - place < least:
            return False
        if greedy:
            return any(rest(stop) for stop in range(end, place + least - 1, -1))
        while not rest(end):
            if end - place >= most or not self._takes(node[0], node[1], end):
                return False
            end += 1
        return True

    def _rounds(self, body: Any, least: int, most: int, done: int, place: int, greedy: bool, rest: _Next) -> bool:
        def again(end: int) -> bool:
            if end == place and done >= least:
                return False
            return self._rounds(body, least, most, done + 1, end, greedy, rest)

        if done < least:
            return self._sequence(body, 0, place, again)
        more = done < most
        if greedy:
            return (more and self._sequence(body, 0, place, again)) or rest(place)
        return rest(place) or (more and self._sequence(body, 0, place, again))

    def _takes(self, kind: Any, value: Any, place: int) -> bool:
        self._step()
        if place >= len(self.text):
            return False
        code = self.text[place]
        if kind is names.ANY:
            return code != 10 or bool(self.flags & re.S)
        codes = {code, ord(chr(code).lower()[0]), ord(chr(code).upper()[0])} if self.flags & re.I else {code}
        if kind is names.IN:
            return any(_in_set(value, one) for one in codes)
        return (value in codes) == (kind is names.LITERAL)

    def _is_at(self, value: Any, place: int) -> bool:
        lines = bool(self.flags & re.M)
        if value in (names.AT_BEGINNING, names.AT_BEGINNING_STRING):
            after_line = lines and value is names.AT_BEGINNING and place > 0 and self.text[place - 1] == 10
            return place == 0 or after_line
        if value in (names.AT_END, names.AT_END_STRING):
            rest = self.text[place:]
            before_line = value is names.AT_END and (rest == [10] or (lines and rest[:1] == [10]))
            return not rest or before_line
        before = place > 0 and _is_word(self.text[place - 1])
        after = place < len(self.text) and _is_word(self.text[place])
        return (before != after) == (value is names.AT_BOUNDARY)


def _is_word(code: int) -> bool:
    return chr(code).isalnum() or code == ord("_")


def _in_set(members: Any, code: int) -> bool:
    negated = bool(members) and members[0][0] is names.NEGATE
    return any(_is_member(member[0], member[1], code) for member in members[negated:]) != negated


def _is_member(kind: Any, value: Any, code: int) -> bool:
    if kind is names.LITERAL:
        return bool(code == value)
    if kind is names.RANGE:
        return bool(value[0] <= code <= value[1])
    found = {"DIGIT": chr(code).isdecimal(), "SPACE": chr(code).isspace(), "WORD": _is_word(code)}
    _, *no, name = str(value).split("_")
    return found[name] != bool(no)


def attacks(tree: Any) -> Iterator[tuple[str, str, str]]:
    """(start, what is to be repeated, end): texts that reach a repetition, fill it, and then fit no more."""
    repeats = list(_repeats(tree, ""))
    pumps = {pump: None for prefix, bodies in repeats for pump in (*bodies, prefix) if pump}
    for start in dict.fromkeys(("", *(prefix for prefix, _ in repeats))):
        for pump in pumps:
            for end in ("", "\0"):
                yield start, pump, end


def _repeats(nodes: Any, prefix: str) -> Iterator[tuple[str, list[str]]]:
    """Each repetition in a tree: the shortest text before it, and texts that may fill it."""
    for kind, value in nodes:
        node = [(kind, value)]
        if kind in (names.MAX_REPEAT, names.MIN_REPEAT) and value[1] > _MANY:
            yield prefix, _fillings(value[2])
        for inner in _inside(kind, value):
            yield from _repeats(inner, prefix)
        prefix += _shortest(node)


def _inside(kind: Any, value: Any) -> list[Any]:
    """The patterns that a node holds."""
    if kind is names.BRANCH:
        return list(value[1])
    if kind is names.SUBPATTERN:
        return [value[-1]]
    return [value[2]] if kind in (names.MAX_REPEAT, names.MIN_REPEAT) else []


def _fillings(body: Any) -> list[str]:
    if len(body) == 1 and body[0][0] in _SINGLE:
        return [char for char in _SAMPLES if _fits(body[0], char)][:3] or [_shortest(body)]
    inner = [_shortest([node]) for node in body]
    return [text for text in dict.fromkeys((_shortest(body), *inner)) if text]


def _fits(node: Any, char: str) -> bool:
    kind, value = node
    if kind is names.IN:
        return _in_set(value, ord(char))
    return kind is names.ANY or (ord(char) == value) == (kind is names.LITERAL)


def _shortest(nodes: Any) -> str:
    """A short text that fits."""
    text = ""
    for kind, value in nodes:
        if kind is names.LITERAL:
            text += chr(value)
        elif kind in _SINGLE:
            fitting = (chr(code) for code in (*map(ord, _SAMPLES), *range(32, 256)) if _fits((kind, value), chr(code)))
            text += next(fitting, "")
        else:
            times = value[0] if kind in (names.MAX_REPEAT, names.MIN_REPEAT) else 1
            text += min((_shortest(inner) for inner in _inside(kind, value)), key=len, default="") * times
    return text


def literals(tree: Any) -> list[str]:
    """The plain words in a pattern: a text made of them starts a search again and again."""
    found, run = [], ""
    for kind, value in tree:
        if kind is names.LITERAL:
            run += chr(value)
            continue
        found += [run, *(word for inner in _inside(kind, value) for word in literals(inner))]
        run = ""
    return [word for word in dict.fromkeys((*found, run)) if word]


@contextmanager
def _deep_recursion() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(8000)
    yield
    sys.setrecursionlimit(before)


@_deep_recursion()
def slowest_growth(pattern: re.Pattern[Any], how: str, enough: float = math.inf) -> tuple[float, str]:
    """By how much the steps grow at most where a text is four times as long, and the text's repeated part.

    4 is linear, 16 quadratic; infinity where the steps cannot even be counted. The first growth above `enough` ends
    the search.
    """
    counted = Counted(pattern)
    worst = (0.0, "")
    tried = list(attacks(counted.tree))
    tried += [("", word, "\0") for word in literals(counted.tree) if tried]
    for start, pump, end in dict.fromkeys(tried):
        times = max(4, 48 // len(pump))
        try:
            few = counted.count(start + pump * times + end, how)
            if few < _FEW * times * len(pump):
                continue
            growth = counted.count(start + pump * 4 * times + end, how) / few
        except TooManySteps:
            growth = math.inf
        worst = max(worst, (growth, f"{start!r} {pump!r} {end!r}"))
        if growth > enough:
            break
    return worst
