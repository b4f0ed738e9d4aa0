"""The most frequent expressions, read by their words: Python's parser would take most of a check's time.

A text is looked at once: what gives its value is kept for the other launches and releases that have it.
"""

from __future__ import annotations

import _ast
from collections.abc import Mapping
from functools import cache
from typing import Any

from megatron_hcp.validators.calls import Reader, call_of_words
from megatron_hcp.validators.nodes import reader_of_tree
from megatron_hcp.validators.operations import FAULTS, compared, joined, operate
from megatron_hcp.validators.trees import tree_of
from megatron_hcp.validators.values import NOT_READ, NotKnown, Symbol, truth

PLAIN: Mapping[str, Any] = {"None": None, "True": True, "False": False, "...": NOT_READ}
_LEVELS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
_WORD_OPERATORS = {
    "==": _ast.Eq, "!=": _ast.NotEq, "<": _ast.Lt, "<=": _ast.LtE, ">": _ast.Gt, ">=": _ast.GtE,
    "in": _ast.In, "is": _ast.Is,
}  # fmt: skip
_PRODUCTS = {"*": _ast.Mult, "%": _ast.Mod, "//": _ast.FloorDiv, "/": _ast.Div}
_SUMS = {"+": _ast.Add, "-": _ast.Sub}


@cache
def reader_of(text: str) -> Reader:
    """What gives the value of a text. The most frequent kinds need no parser: it takes most of the time."""
    return _by_words(text) or reader_of_tree(tree_of(text))


def _by_words(text: str) -> Reader | None:
    """The same for what plain words say; None if only its tree can tell."""
    if text[-1:] == ")":
        if text.count("(") == 1 and text[:1] != "(" and text[:5] != "not (":
            return _negation(_call(text[4:])) if text[:4] == "not " else _call(text)
        inner = text.removeprefix("not ")
        if inner[0] == "(" and len(inner) > 2 and _is_whole(inner[1:-1]):
            return _negation(_part(inner[1:-1])) if inner != text else reader_of(inner[1:-1])
    if " and " in text or " or " in text:
        return _sentence(text)
    words = text.split(" ")
    if len(words) == 1:
        return _word(text)
    if words[0] == "not" and len(words) == 2:
        return _negation(_word(words[1]))
    if words[1] == "is" and words[-1] == "None" and (len(words) == 3 or (len(words) == 4 and words[2] == "not")):
        return _presence(_term(words[0]), len(words) == 3)
    if len(words) == 3 and words[1] in _WORD_OPERATORS:
        return _comparison(_WORD_OPERATORS[words[1]], _term(words[0]), _term(words[2]))
    if len(words) > 4 and words[-2] in _WORD_OPERATORS:
        return _comparison(_WORD_OPERATORS[words[-2]], _computed(words[:-2]), _term(words[-1]))
    return _computed(words)


def _sentence(text: str) -> Reader | None:
    """Parts joined by `and` and `or`; where one of these is inside of brackets or of a text, it is parsed."""
    if "lambda" in text or " if " in text or '"' in text or "\\" in text:
        return None
    word = " or " if " or " in text else " and "
    texts = text.split(word)
    if not all(map(_is_whole, texts)):
        return None
    parts = [*map(_part, texts)]
    return lambda one: joined(parts, one, word == " or ")


def _is_whole(text: str) -> bool:
    """Whether no bracket and no quote is open at the end, and no comma is outside of them."""
    if text.count("'") % 2:
        return False
    depth = 0
    for mark in "".join(text.split("'")[::2]):
        depth += _LEVELS.get(mark, 0)
        if depth < 0 or (mark == "," and not depth):
            return False
    return not depth


def _part(text: str) -> Reader:
    """Reads a text only if the parts before it leave it open."""
    return lambda one: reader_of(text)(one)


def _negation(word: Reader | None) -> Reader | None:
    if word is None:
        return None

    def read(one: Any) -> Any:
        found = truth(word(one))
        return found if isinstance(found, NotKnown) else not found

    return read


def _presence(word: Reader | None, is_none: bool) -> Reader | None:
    if word is None:
        return None

    def read(one: Any) -> Any:
        found = word(one)
        return found if isinstance(found, NotKnown) else (found is None) is is_none

    return read


def _comparison(op: type, left: Reader | None, right: Reader | None) -> Reader | None:
    if left is None or right is None:
        return None

    def read(one: Any) -> Any:
        try:
            return compared(op, left(one), right(one))
        except FAULTS:
            return NOT_READ

    return read


def _computed(words: list[str]) -> Reader | None:
    """Words joined by operators of one rank."""
    kinds = _PRODUCTS if words[1] in _PRODUCTS else _SUMS
    if len(words) % 2 == 0 or not kinds.keys() >= set(words[1::2]):
        return None
    found = _term(words[0])
    for sign, word in zip(words[1::2], words[2::2]):
        found = _operation(kinds[sign], found, _term(word))
    return found


def _operation(op: type, left: Reader | None, right: Reader | None) -> Reader | None:
    if left is None or right is None:
        return None

    def read(one: Any) -> Any:
        try:
            return operate(op, left(one), right(one))
        except FAULTS:
            return NOT_READ

    return read


def _call(text: str) -> Reader | None:
    """A call of a name, or of a field of one, whose arguments are words."""
    name, _, inner = text[:-1].partition("(")
    owner, dot, _ = name.rpartition(".")
    if not all(map(str.isidentifier, name.split("."))):
        return None
    parts = []
    for word in inner.split(", ") if inner else ():
        keyword, equals, value = word.partition("=")
        if not (equals and keyword.isidentifier()):
            keyword, value = "", word
        if (reader := _word(value)) is None:
            return None
        parts.append((keyword, reader))
    return call_of_words(name, _word(owner) if dot else None, parts)


def _term(word: str) -> Reader | None:
    """A word, or a call with one argument or none."""
    return _call(word) if word[-1:] == ")" and word.count("(") == 1 else _word(word)


@cache
def _word(word: str) -> Reader | None:
    """A plain literal, a name, or fields of one."""
    if word in PLAIN:
        value = PLAIN[word]
        return lambda _: value
    owner, dot, name = word.partition(".")
    if word.isdecimal() or (owner.isdecimal() and name.isdecimal()):
        number = float(word) if dot else int(word)
        return lambda _: number
    if word[:1] == "'" == word[-1:] and word.count("'") == 2 and "\\" not in word:
        text = word[1:-1]
        return lambda _: text
    parts = word.split(".")
    return _fields(*parts) if all(map(str.isidentifier, parts)) else None


def _fields(owner: str, *names: str) -> Reader:
    symbol = Symbol(owner)
    if not names:
        return lambda one: one.frame.get(owner, symbol)

    def read(one: Any) -> Any:
        value = one.frame.get(owner, symbol)
        for name in names:
            value = one.field(value, name)
        return value

    return read
