"""The most frequent expressions, read by their words: Python's parser would take most of a check's time.

A text is looked at once: what gives its value is kept for the other launches and releases that have it.
"""

from __future__ import annotations

import _ast
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from megatron_hcp.validators.operations import FAULTS, compared, joined
from megatron_hcp.validators.trees import tree_of
from megatron_hcp.validators.values import ABSENT, NOT_READ, NotKnown, Symbol, truth

PLAIN: Mapping[str, Any] = {"None": None, "True": True, "False": False, "...": NOT_READ}
_BRACKETS = ("(", "[", "{", "lambda", "' ", " '", " if ")
_WORD_OPERATORS = {
    "==": _ast.Eq, "!=": _ast.NotEq, "<": _ast.Lt, "<=": _ast.LtE, ">": _ast.Gt, ">=": _ast.GtE,
    "in": _ast.In, "is": _ast.Is,
}  # fmt: skip


class PlainWords:
    """Evaluates an expression's text; trees are for the class that builds on it."""

    frame: dict[str, Any]

    def value(self, tree: Any) -> Any:
        raise NotImplementedError

    def field(self, owner: Any, name: str) -> Any:
        raise NotImplementedError

    def text_value(self, text: str) -> Any:
        """The value of an expression's text. The most frequent kinds need no parser: it takes most of the time."""
        found = _reader_of(text)(self)
        return self.value(tree_of(text)) if found is ABSENT else found


Reader = Callable[[PlainWords], Any]
"""Gives an expression's value; `ABSENT` if only its tree can tell."""


@cache
def _reader_of(text: str) -> Reader:
    if " and " in text or " or " in text:
        return _sentence(text)
    words = text.split(" ")
    if len(words) == 1:
        return _word(text)
    if words[0] == "not" and len(words) == 2:
        return _negation(_word(words[1]))
    if words[1] == "is" and words[-1] == "None" and (len(words) == 3 or (len(words) == 4 and words[2] == "not")):
        return _presence(_word(words[0]), len(words) == 3)
    if len(words) == 3 and words[1] in _WORD_OPERATORS:
        return _comparison(_WORD_OPERATORS[words[1]], _word(words[0]), _word(words[2]))
    return _by_tree


def _by_tree(_: PlainWords) -> Any:
    return ABSENT


def _sentence(text: str) -> Reader:
    """Parts joined by `and` and `or`; those with brackets or longer texts are parsed."""
    if any(mark in text for mark in _BRACKETS):
        return _by_tree
    word = " or " if " or " in text else " and "
    parts = text.split(word)
    return lambda one: joined(map(one.text_value, parts), word == " or ")


def _negation(word: Reader) -> Reader:
    def read(one: PlainWords) -> Any:
        found = word(one)
        if found is not ABSENT:
            found = truth(found)
        return found if found is ABSENT or isinstance(found, NotKnown) else not found

    return read


def _presence(word: Reader, is_none: bool) -> Reader:
    def read(one: PlainWords) -> Any:
        found = word(one)
        return found if found is ABSENT or isinstance(found, NotKnown) else (found is None) is is_none

    return read


def _comparison(op: type, left: Reader, right: Reader) -> Reader:
    def read(one: PlainWords) -> Any:
        first, second = left(one), right(one)
        if first is ABSENT or second is ABSENT:
            return ABSENT
        try:
            return compared(op, first, second)
        except FAULTS:
            return NOT_READ

    return read


@cache
def _word(word: str) -> Reader:
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
    return _fields(*parts) if all(map(str.isidentifier, parts)) else _by_tree


def _fields(owner: str, *names: str) -> Reader:
    def read(one: PlainWords) -> Any:
        value = one.frame[owner] if owner in one.frame else Symbol(owner)
        for name in names:
            value = one.field(value, name)
        return value

    return read
