"""The most frequent expressions, read by their words: Python's parser would take most of a check's time."""

from __future__ import annotations

import _ast
from collections.abc import Mapping
from typing import Any

from megatron_hcp.validators.operations import FAULTS, compared, joined
from megatron_hcp.validators.trees import tree_of
from megatron_hcp.validators.values import ABSENT, NOT_READ, NotKnown, truth

PLAIN: Mapping[str, Any] = {"None": None, "True": True, "False": False, "...": NOT_READ}
_BRACKETS = ("(", "[", "{", "lambda", "' ", " '")
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
        if " and " in text or " or " in text:
            return self._sentence(text)
        words = text.split(" ")
        if len(words) == 1:
            found = self._word(text)
            if found is not ABSENT:
                return found
        elif words[0] == "not" and len(words) == 2:
            found = self._word(words[1])
            if found is not ABSENT:
                found = truth(found)
                return found if isinstance(found, NotKnown) else not found
        elif words[1] == "is" and words[-1] == "None" and len(words) in (3, 4):
            found = self._word(words[0])
            if found is not ABSENT:
                return found if isinstance(found, NotKnown) else (found is None) is (len(words) == 3)
        elif len(words) == 3 and words[1] in _WORD_OPERATORS:
            left, right = self._word(words[0]), self._word(words[2])
            if left is not ABSENT and right is not ABSENT:
                try:
                    return compared(_WORD_OPERATORS[words[1]], left, right)
                except FAULTS:
                    return NOT_READ
        return self.value(tree_of(text))

    def _sentence(self, text: str) -> Any:
        """The value of parts joined by `and` and `or`; those with brackets or longer texts are parsed."""
        if any(mark in text for mark in _BRACKETS) or (" if " in text):
            return self.value(tree_of(text))
        for word, stops_at in ((" or ", True), (" and ", False)):
            if word in text:
                return joined(map(self.text_value, text.split(word)), stops_at)
        return self.value(tree_of(text))

    def _word(self, word: str) -> Any:
        """The value of a plain literal, a name, or a field of one; `ABSENT` if the word is something else."""
        if word in PLAIN:
            return PLAIN[word]
        owner, dot, name = word.partition(".")
        if owner in self.frame:
            if not dot:
                return self.frame[owner]
            return self.field(self.frame[owner], name) if name.isidentifier() else ABSENT
        if word.isdecimal():
            return int(word)
        if owner.isdecimal() and name.isdecimal():
            return float(word)
        return word[1:-1] if word[:1] == "'" == word[-1:] and word.count("'") == 2 and "\\" not in word else ABSENT
