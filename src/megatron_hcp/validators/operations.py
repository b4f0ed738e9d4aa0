"""Python's operators over values that may be unknown, within bounds."""

from __future__ import annotations

import _ast
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from megatron_hcp.validators.values import NOT_READ, STUMBLES, NotKnown, Symbol, Thing, merged, truth

MOST_ITEMS = 10_000
_LARGEST = 10**30
FAULTS = (TypeError, ValueError, ZeroDivisionError, IndexError, KeyError, AttributeError, OverflowError)
_OPERATORS: Mapping[type, Callable[..., Any]] = {
    _ast.Add: operator.add, _ast.Sub: operator.sub, _ast.Mult: operator.mul, _ast.Mod: operator.mod,
    _ast.FloorDiv: operator.floordiv, _ast.Div: operator.truediv, _ast.BitAnd: operator.and_,
    _ast.BitOr: operator.or_, _ast.Eq: operator.eq, _ast.NotEq: operator.ne, _ast.Lt: operator.lt,
    _ast.LtE: operator.le, _ast.Gt: operator.gt, _ast.GtE: operator.ge, _ast.USub: operator.neg,
    _ast.UAdd: operator.pos,
}  # fmt: skip


_PLAIN = frozenset((int, float, str, bool, type(None)))


def _result(op: type, left: Any, right: Any) -> Any:
    try:
        return _OPERATORS[op](left, right)
    except (TypeError, ZeroDivisionError):
        if type(left) in _PLAIN and type(right) in _PLAIN:
            return STUMBLES
        raise


def operate_one(op: type, value: Any) -> Any:
    """The value of a sign before a known number."""
    return _OPERATORS[op](value)


def operate(op: type, left: Any, right: Any) -> Any:
    """The value of an arithmetic operator."""
    if left is STUMBLES or right is STUMBLES:
        return STUMBLES
    if isinstance(left, NotKnown) or isinstance(right, NotKnown):
        return merged(left, right)
    if op is _ast.Mult and (_repeats(left, right) or _repeats(right, left)):
        return NOT_READ
    if op is _ast.Mod and isinstance(left, str):
        return NOT_READ
    if isinstance(left, frozenset) and op is _ast.Sub:
        return left - frozenset(right)
    found = _result(op, left, right)
    return NOT_READ if isinstance(found, int) and abs(found) > _LARGEST else found


def compared(op: type, left: Any, right: Any) -> Any:
    """The value of one comparison."""
    if left is STUMBLES or right is STUMBLES:
        return STUMBLES
    if isinstance(left, NotKnown) or isinstance(right, NotKnown):
        return merged(left, right)
    if op in (_ast.In, _ast.NotIn):
        found = _contains(right, left)
        return found if isinstance(found, NotKnown) else found is (op is _ast.In)
    if op in (_ast.Is, _ast.IsNot):
        alike = left is right or (isinstance(left, Symbol) and left == right)
        return alike is (op is _ast.Is)
    if isinstance(left, (list, tuple)) and any(isinstance(item, NotKnown) for item in left):
        return merged(left)
    if isinstance(right, (list, tuple)) and any(isinstance(item, NotKnown) for item in right):
        return merged(right)
    return _result(op, left, right)


def _repeats(sequence: Any, times: Any) -> bool:
    return isinstance(sequence, (str, list, tuple)) and isinstance(times, int) and len(sequence) * times > MOST_ITEMS


def iterable(value: Any) -> Any:
    """The items of a known collection; a set's in a fixed order.

    Raises:
        ValueError: they are not known, or too many.
    """
    if isinstance(value, Thing) and value.kind == "dict":
        return list(value.fields)
    is_known = isinstance(value, (list, tuple, frozenset, range, str)) and not isinstance(value, Symbol)
    if is_known and len(value) <= MOST_ITEMS:
        return sorted(value, key=str) if isinstance(value, frozenset) else value
    raise ValueError("unknown items")


def _contains(owner: Any, item: Any) -> Any:
    if isinstance(owner, Thing):
        return item in owner.fields or (False if owner.is_closed else NOT_READ)
    if isinstance(owner, str):
        return isinstance(item, str) and item in owner
    if isinstance(owner, (list, tuple)):
        known = [one for one in owner if not isinstance(one, NotKnown)]
        return True if any(one == item for one in known) else merged(owner) if len(known) < len(owner) else False
    return item in owner


def joined(parts: Iterable[Callable[[Any], Any]], one: Any, stops_at: bool) -> Any:
    """The value of `or` (it stops at true) or `and` over what the parts give for `one`, evaluated one by one."""
    unknown: list[Any] = []
    value: Any = None
    for part in parts:
        value = part(one)
        test = value if value is True or value is False else truth(value)
        if test is stops_at:
            return value if not unknown else stops_at
        if isinstance(test, NotKnown):
            if test is STUMBLES and not unknown:
                return test
            unknown.append(test)
    return merged(*unknown) if unknown else value
