"""Conditions: `[ … ]`, `[[ … ]]`, `(( … ))`. The answer is True, False, or None where it cannot be told."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from hcp.bash.arith import Undecidable, glob_pattern, is_cheap
from hcp.bash.expand import MAX_DEPTH, arithmetic_text, fragments, value
from hcp.bash.split import Splice
from hcp.bash.state import State
from hcp.bash.value import Lit, Value, text_of

if TYPE_CHECKING:
    from tree_sitter import Node

_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}
_COMPARISONS = {*_NUMBERS, "=", "==", "!=", "=~", "<", ">"}
_NESTING = {"binary_expression", "unary_expression", "parenthesized_expression", "negated_command"}
_LONGEST_MATCHED = 10_000


def holds(m: State, node: Node) -> bool | None:
    """Whether a test command is true."""
    if node.children and node.children[0].type == "((":
        return arithmetic_holds(m, node)
    return _Test(m, _tokens(node)).answer()


def arithmetic_holds(m: State, node: Node) -> bool | None:
    """Whether `((…))` is true, which is: not zero. A `!` before it is not part of the question."""
    start = m.source.data.index(b"((", node.start_byte)
    try:
        return m.arithmetic(arithmetic_text(m, node, start + 2, node.end_byte - 2)) != 0
    except Undecidable:
        return None


class _Token(NamedTuple):
    """An operator, or an operand (`node`)."""

    text: str
    node: Node | None = None


def _tokens(node: Node) -> list[_Token]:
    """The operators and operands of a test in the order of the text.

    The grammar's own nesting is not used: it reads `a = b && -n c` as `a = (b && -n c)`.
    """
    tokens: list[_Token] = []
    stack = list(reversed(node.children[1:-1]))
    while stack:
        child = stack.pop()
        if child.type in _NESTING:
            stack.extend(reversed(child.children))
        elif child.type == "test_operator" or not child.is_named:
            tokens.append(_Token((child.text or b"").decode("utf-8", "replace")))
        elif child.type != "comment":
            tokens.append(_Token("", child))
    return tokens


class _Test:
    """Evaluates the tokens: `||` (`-o`) below `&&` (`-a`) below `!` and the comparisons."""

    def __init__(self, m: State, tokens: list[_Token]) -> None:
        self.m, self.tokens = m, tokens
        self.place = 0
        self.depth = 0

    def answer(self) -> bool | None:
        answer = self._or()
        return answer if self.place == len(self.tokens) else None

    def _accept(self, *texts: str) -> str:
        if self.place < len(self.tokens) and self.tokens[self.place].text in texts:
            self.place += 1
            return self.tokens[self.place - 1].text
        return ""

    def _or(self) -> bool | None:
        answer = self._and()
        while self._accept("||", "-o"):
            other = self._and()
            answer = True if answer or other else None if answer is None or other is None else False
        return answer

    def _and(self) -> bool | None:
        answer = self._not()
        while self._accept("&&", "-a"):
            other = self._not()
            answer = False if answer is False or other is False else True if answer and other else None
        return answer

    def _not(self) -> bool | None:
        negated = False
        while self._accept("!"):
            negated = not negated
        answer = self._primary()
        return None if answer is None else answer != negated

    def _primary(self) -> bool | None:
        if self._accept("("):
            self.depth += 1
            answer = self._or() if self.depth < MAX_DEPTH else None
            self.depth -= 1
            return answer if self._accept(")") else None
        if self.place >= len(self.tokens):
            return None
        text, node = self.tokens[self.place]
        self.place += 1
        if node is None:
            if self.place >= len(self.tokens) or text[:1] != "-":
                return None
            operand = self.tokens[self.place].node
            self.place += 1
            return _unary(self.m, text, operand) if operand is not None else None
        following = self.tokens[self.place : self.place + 2]
        if len(following) == 2 and following[1].node is not None and following[0].text in _COMPARISONS:
            self.place += 2
            return _compare(self.m, node, following[0].text, following[1].node)
        return _is_filled(value(self.m, node))


def _unary(m: State, sign: str, operand: Node) -> bool | None:
    if sign in ("-z", "-n"):
        splices = [frag.what for frag in fragments(m, operand, False) if isinstance(frag.what, Splice)]
        if splices and not any(splice.items for splice in splices):
            filled: bool | None = False
        else:
            filled = _is_filled(value(m, operand))
        return None if filled is None else filled == (sign == "-n")
    if sign == "-v":
        name = text_of(value(m, operand))
        span = (m.source, operand.start_byte, operand.end_byte)
        return m.lookup(name, span)[1] if name and name.isidentifier() else None
    return None  # files: what exists where the script runs is not known


def _is_filled(found: Value) -> bool | None:
    if any(isinstance(part, Lit) and part.text for part in found):
        return True
    return False if text_of(found) is not None else None


def _compare(m: State, left: Node, sign: str, right: Node) -> bool | None:
    first = text_of(value(m, left))
    if sign in ("=", "==", "!=", "=~"):
        return _compared(m, first, right, sign)
    second = text_of(value(m, right))
    if first is None or second is None:
        return None
    if sign in ("<", ">"):
        return first < second if sign == "<" else first > second
    try:
        return _NUMBERS[sign](m.arithmetic(first), m.arithmetic(second))
    except Undecidable:
        return None


def _compared(m: State, left: str | None, right: Node, sign: str) -> bool | None:
    pattern = pattern_of(m, right, is_regex=sign == "=~")
    if left is None or pattern is None:
        return None
    if isinstance(pattern, str):
        found: bool = left == pattern
    elif len(left) > _LONGEST_MATCHED or not is_cheap(pattern.pattern, left):
        return None
    else:
        found = (pattern.search(left) if sign == "=~" else pattern.fullmatch(left)) is not None
    return found != (sign == "!=")


def pattern_of(m: State, node: Node, is_regex: bool = False) -> re.Pattern[str] | str | None:
    """The right side of `==`, `=~` or a case: a text where it has no unquoted `*?[`, else a compiled pattern."""
    raw = (node.text or b"").decode("utf-8", "replace")
    if is_regex:
        if any(char in raw for char in "$`\"'\\") and not re.fullmatch(r"[^$`\"'\\]*\$?", raw):
            return None
        return _compiled(raw.replace("[[:space:]]", r"\s").replace("[[:digit:]]", r"\d"))
    if not any(char in raw for char in "*?["):
        return text_of(value(m, node))
    pieces: list[str] = []
    for child in node.children if node.type == "concatenation" else [node]:
        if child.type in ("string", "raw_string", "simple_expansion", "expansion"):
            text = text_of(value(m, child))
            if text is None:
                return None
            pieces.append(re.escape(text))
        else:
            text = (child.text or b"").decode("utf-8", "replace")
            if any(char in text for char in "$`\"'") or "(" in text:
                return None
            pieces.append(glob_pattern(text))
    return _compiled("".join(pieces))


def _compiled(pattern: str) -> re.Pattern[str] | None:
    if len(pattern) > 300 or re.search(r"[*+?}]\)*[*+{]|[*+}][^)]*\)[*+{]", pattern):
        return None  # a repetition of a repetition may take exponential time
    try:
        return re.compile(pattern, re.S)
    except (re.error, OverflowError, RecursionError):
        return None
