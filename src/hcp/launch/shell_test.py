"""Conditions: `[ … ]`, `[[ … ]]`, `(( … ))`. The answer is True, False, or None where it cannot be told."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from hcp.launch.shell_arith import Undecidable, glob_pattern, is_cheap
from hcp.launch.shell_expand import MAX_DEPTH, arithmetic_text, fragments, value
from hcp.launch.shell_split import Splice
from hcp.launch.shell_state import State
from hcp.launch.shell_value import Lit, Value, text_of

if TYPE_CHECKING:
    from tree_sitter import Node

_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b, "-ne": lambda a, b: a != b, "-lt": lambda a, b: a < b, "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b, "-ge": lambda a, b: a >= b,
}
_LONGEST_MATCHED = 10_000


def holds(m: State, node: Node) -> bool | None:
    """Whether a test command, or an expression inside one, is true."""
    if m.depth > MAX_DEPTH:
        return None
    m.depth += 1
    try:
        return _holds(m, node)
    finally:
        m.depth -= 1


def arithmetic_holds(m: State, node: Node) -> bool | None:
    """Whether `((…))` is true, which is: not zero."""
    try:
        return m.arithmetic(arithmetic_text(m, node, node.start_byte + 2, node.end_byte - 2)) != 0
    except Undecidable:
        return None


def _holds(m: State, node: Node) -> bool | None:
    kind = node.type
    if kind in ("test_command", "parenthesized_expression"):
        if node.children and node.children[0].type == "((":
            return arithmetic_holds(m, node)
        inner = node.named_children
        return holds(m, inner[0]) if len(inner) == 1 else None
    if kind == "unary_expression":
        return _unary(m, node)
    if kind == "binary_expression":
        return _binary(m, node)
    if kind == "negated_command":
        answer = holds(m, node.named_children[0]) if node.named_children else None
        return None if answer is None else not answer
    found = value(m, node)
    return _is_filled(found)


def _is_filled(found: Value) -> bool | None:
    if any(isinstance(part, Lit) and part.text for part in found):
        return True
    return False if text_of(found) is not None else None


def _unary(m: State, node: Node) -> bool | None:
    operator, operand = node.children[0], node.children[-1]
    sign = (operator.text or b"").decode("utf-8", "replace")
    if sign == "!":
        answer = holds(m, operand)
        return None if answer is None else not answer
    if sign in ("-z", "-n"):
        frags = fragments(m, operand, False)
        splices = [frag.what for frag in frags if isinstance(frag.what, Splice)]
        if splices and not any(splice.items for splice in splices):
            filled: bool | None = False
        else:
            filled = _is_filled(value(m, operand))
        return None if filled is None else filled == (sign == "-n")
    if sign == "-v":
        name = text_of(value(m, operand))
        return m.lookup(name, (m.source, node.start_byte, node.end_byte))[1] if name and name.isidentifier() else None
    return None  # files: what exists where the script runs is not known


def _binary(m: State, node: Node) -> bool | None:
    if len(node.children) != 3:
        return None
    left, operator, right = node.children
    sign = (operator.text or b"").decode("utf-8", "replace")
    if sign in ("&&", "-a"):
        return _both(holds(m, left), lambda: holds(m, right))
    if sign in ("||", "-o"):
        answer = _both(_not(holds(m, left)), lambda: _not(holds(m, right)))
        return _not(answer)
    first, second = text_of(value(m, left)), None
    if sign in ("=", "==", "!=", "=~"):
        return _compared(m, first, right, sign)
    second = text_of(value(m, right))
    if first is None or second is None:
        return None
    if sign in _NUMBERS:
        try:
            return _NUMBERS[sign](m.arithmetic(first), m.arithmetic(second))
        except Undecidable:
            return None
    if sign in ("<", ">"):
        return first < second if sign == "<" else first > second
    return None


def _not(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


def _both(first: bool | None, second: Callable[[], bool | None]) -> bool | None:
    if first is False:
        return False
    answer = second()
    if answer is False:
        return False
    return True if first and answer else None


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


