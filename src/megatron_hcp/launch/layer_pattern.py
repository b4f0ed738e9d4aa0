"""Megatron-LM's layer patterns, such as `([0]*3+[1]*58)`: upstream evaluates them as Python; here they are parsed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ast

MOST_TEXT, MOST_LAYERS = 500, 10_000


def layer_pattern(text: str) -> int | tuple[int, ...] | None:
    """The pattern in a text: n for every n-th layer, or a number for each layer; None if it isn't a pattern.

    Source: megatron/training/arguments.py, moe_freq_type and _eval_pattern.

    >>> layer_pattern("2"), layer_pattern("([1]*2+[0])*2"), layer_pattern("exit()")
    (2, (1, 1, 0, 1, 1, 0), None)
    """
    text = text.strip().strip("'\"")
    if len(text) > MOST_TEXT or re.fullmatch(r"[0-9\[\]*+(), ]+", text) is None:
        return None
    import ast

    try:
        found = _value(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tuple(found) if isinstance(found, list) else found


def _value(node: ast.expr) -> int | list[int]:
    """A number, a list of numbers, two lists in one, or a list several times; ValueError for anything else."""
    import ast

    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.List) and all(isinstance(item, ast.Constant) for item in node.elts):
        return [item.value for item in node.elts if isinstance(item, ast.Constant) and isinstance(item.value, int)]
    if not isinstance(node, ast.BinOp):
        raise ValueError
    left, right = _value(node.left), _value(node.right)
    if isinstance(left, int):
        left, right = right, left
    if isinstance(left, int):
        raise ValueError
    if isinstance(node.op, ast.Add) and isinstance(right, list) and len(left) + len(right) <= MOST_LAYERS:
        return left + right
    if isinstance(node.op, ast.Mult) and isinstance(right, int) and len(left) * right <= MOST_LAYERS:
        return left * right
    raise ValueError
