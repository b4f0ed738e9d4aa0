"""The most frequent expressions, read by their words: Python's parser would take most of a check's time.

A text is looked at once: what gives its value is kept for the other launches and releases that have it.
"""

from __future__ import annotations

import _ast
from collections.abc import Mapping
from functools import cache
from typing import Any

from megatron_hcp.validators.calls import Reader
from megatron_hcp.validators.nodes import reader_of_tree
from megatron_hcp.validators.operations import FAULTS, compared, joined
from megatron_hcp.validators.trees import tree_of
from megatron_hcp.validators.values import NOT_READ, NotKnown, Symbol, truth

PLAIN: Mapping[str, Any] = {"None": None, "True": True, "False": False, "...": NOT_READ}
_BRACKETS = ("(", "[", "{", "lambda", "' ", " '", " if ")
_WORD_OPERATORS = {
    "==": _ast.Eq, "!=": _ast.NotEq, "<": _ast.Lt, "<=": _ast.LtE, ">": _ast.Gt, ">=": _ast.GtE,
    "in": _ast.In, "is": _ast.Is,
}  # fmt: skip


@cache
def reader_of(text: str) -> Reader:
    """What gives the value of a text. The most frequent kinds need no parser: it takes most of the time."""
    return _by_words(text) or reader_of_tree(tree_of(text))


def _by_words(text: str) -> Reader | None:
    """The same for what plain words say; None if only its tree can tell."""
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
    return None


def _sentence(text: str) -> Reader | None:
    """Parts joined by `and` and `or`; those with brackets or longer texts are parsed."""
    if any(mark in text for mark in _BRACKETS):
        return None
    word = " or " if " or " in text else " and "
    parts = [*map(_part, text.split(word))]
    return lambda one: joined(parts, one, word == " or ")


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
