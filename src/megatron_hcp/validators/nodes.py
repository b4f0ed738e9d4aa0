"""What gives the value of an expression's tree. It is made once for a tree, and called for every launch and release.

Each kind of node has a function that makes a reader: one that gives the node's value in an evaluation.
"""

from __future__ import annotations

import _ast
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from megatron_hcp.validators.calls import Reader, call_of
from megatron_hcp.validators.operations import FAULTS, compared, iterable, joined, operate, operate_one
from megatron_hcp.validators.values import NOT_READ, STUMBLES, Lambda, NotKnown, Symbol, Thing, merged, truth


@lru_cache(maxsize=20_000)
def reader_of_tree(tree: Any) -> Reader:
    """What gives the tree's value; where Python would raise, it isn't known."""
    return _made(tree)


def _made(tree: Any) -> Reader:
    make = _MAKERS.get(type(tree))
    return _not_read if make is None else make(tree)


def _not_read(_: Any) -> Any:
    return NOT_READ


def _safe(read: Reader) -> Reader:
    """The same; `NOT_READ` where it raises."""

    def safe(one: Any) -> Any:
        try:
            return read(one)
        except FAULTS:
            return NOT_READ

    return safe


def _constant(tree: Any) -> Reader:
    value = NOT_READ if tree.value is ... else tree.value
    return lambda _: value


def _name(tree: Any) -> Reader:
    name, symbol = tree.id, Symbol(tree.id)
    return lambda one: one.frame.get(name, symbol)


def _attribute(tree: Any) -> Reader:
    owner, name = _made(tree.value), tree.attr
    return lambda one: one.field(owner(one), name)


def _boolop(tree: Any) -> Reader:
    parts, stops_at = [*map(_made, tree.values)], isinstance(tree.op, _ast.Or)
    return lambda one: joined(parts, one, stops_at)


def _unary(tree: Any) -> Reader:
    operand, op = _made(tree.operand), type(tree.op)
    if op is _ast.Not:

        def negated(one: Any) -> Any:
            value = truth(operand(one))
            return value if isinstance(value, NotKnown) else not value

        return negated

    def read(one: Any) -> Any:
        value = operand(one)
        return value if isinstance(value, NotKnown) else operate_one(op, value)

    return _safe(read)


def _binary(tree: Any) -> Reader:
    op, left, right = type(tree.op), _made(tree.left), _made(tree.right)
    return _safe(lambda one: operate(op, left(one), right(one)))


def _compare(tree: Any) -> Reader:
    first = _made(tree.left)
    others = [(type(op), _made(part)) for op, part in zip(tree.ops, tree.comparators)]

    def read(one: Any) -> Any:
        unknown: list[Any] = []
        try:
            left = first(one)
            for op, part in others:
                right = part(one)
                found = compared(op, left, right)
                if isinstance(found, NotKnown):
                    if found is STUMBLES and not unknown:
                        return found
                    unknown.append(found)
                elif not found:
                    return False
                left = right
        except FAULTS:
            return NOT_READ
        return merged(*unknown) if unknown else True

    return read


def _choice(tree: Any) -> Reader:
    condition, body, other = _made(tree.test), _made(tree.body), _made(tree.orelse)

    def read(one: Any) -> Any:
        test = truth(condition(one))
        if isinstance(test, NotKnown):
            return merged(test, body(one), other(one))
        return body(one) if test else other(one)

    return read


def _items(trees: Any) -> Reader:
    """Gives a list of the values, with the items of those that have a star.

    Raises:
        ValueError: when it reads, that such items are not known.
    """
    if not any(isinstance(tree, _ast.Starred) for tree in trees):
        parts = [*map(_made, trees)]
        return lambda one: [part(one) for part in parts]
    mixed = [(True, _made(tree.value)) if isinstance(tree, _ast.Starred) else (False, _made(tree)) for tree in trees]

    def read(one: Any) -> Any:
        found: list[Any] = []
        for has_star, part in mixed:
            if has_star:
                found += iterable(part(one))
            else:
                found.append(part(one))
        return found

    return read


def _list(tree: Any) -> Reader:
    items = _items(tree.elts)
    return _safe((lambda one: tuple(items(one))) if isinstance(tree, _ast.Tuple) else items)


def _set(tree: Any) -> Reader:
    parts = _items(tree.elts)

    def read(one: Any) -> Any:
        items = parts(one)
        return merged(items) if any(isinstance(item, NotKnown) for item in items) else frozenset(items)

    return _safe(read)


def _dict(tree: Any) -> Reader:
    parts = [(key and _made(key), _made(value)) for key, value in zip(tree.keys, tree.values)]

    def read(one: Any) -> Any:
        fields: dict[Any, Any] = {}
        for key, value in parts:
            if key is None:
                more = value(one)
                if not isinstance(more, Thing):
                    return NOT_READ
                fields |= more.fields
            else:
                name = key(one)
                if isinstance(name, NotKnown):
                    return name
                fields[name] = value(one)
        return Thing(fields)

    return _safe(read)


def _subscript(tree: Any) -> Reader:
    whole = _made(tree.value)
    if isinstance(tree.slice, _ast.Slice):
        return _safe(_sliced(whole, tree.slice))
    index = _made(tree.slice)

    def read(one: Any) -> Any:
        owner = whole(one)
        if isinstance(owner, NotKnown):
            return owner
        key = index(one)
        if isinstance(key, NotKnown):
            return key
        if isinstance(owner, Thing):
            return owner.fields.get(key, STUMBLES if owner.is_closed and owner.key is not None else NOT_READ)
        return Symbol(f"{owner}.{key}") if isinstance(owner, Symbol) else owner[key]

    return _safe(read)


def _sliced(whole: Reader, tree: Any) -> Reader:
    bounds = [part and _made(part) for part in (tree.lower, tree.upper, tree.step)]

    def read(one: Any) -> Any:
        owner = whole(one)
        if isinstance(owner, NotKnown):
            return owner
        parts = [part and part(one) for part in bounds]
        return merged(*parts) if any(isinstance(part, NotKnown) for part in parts) else owner[slice(*parts)]

    return read


def _text(tree: Any) -> Reader:
    values = [_made(part.value if isinstance(part, _ast.FormattedValue) else part) for part in tree.values]

    def read(one: Any) -> Any:
        parts = [part(one) for part in values]
        if any(isinstance(part, NotKnown) for part in parts):
            return merged(*parts)
        return "".join(map(str, parts)) if all(isinstance(part, (str, int)) for part in parts) else NOT_READ

    return _safe(read)


def _comprehension(tree: Any) -> Reader:
    if len(tree.generators) != 1:
        return _not_read
    loop = tree.generators[0]
    items, tests = _made(loop.iter), [*map(_made, loop.ifs)]
    is_dict = isinstance(tree, _ast.DictComp)
    made = _items((tree.key, tree.value)) if is_dict else _made(tree.elt)

    def read(one: Any) -> Any:
        owner = items(one)
        if isinstance(owner, NotKnown):
            return owner
        found: list[Any] = []
        before = dict(one.frame)
        try:
            for item in iterable(owner):
                one.bind(loop.target, item)
                held = [truth(test(one)) for test in tests]
                if any(isinstance(test, NotKnown) for test in held):
                    return merged(*held)
                if all(held):
                    found.append(made(one))
        finally:
            one.frame.clear()
            one.frame.update(before)
        if is_dict:
            return Thing(dict(found))
        return frozenset(found) if isinstance(tree, _ast.SetComp) else found

    return _safe(read)


def _named(tree: Any) -> Reader:
    value = _made(tree.value)

    def read(one: Any) -> Any:
        found = value(one)
        one.bind(tree.target, found)
        return found

    return read


_MAKERS: Mapping[type, Callable[[Any], Reader]] = {
    _ast.Constant: _constant,
    _ast.Name: _name,
    _ast.Attribute: _attribute,
    _ast.BoolOp: _boolop,
    _ast.UnaryOp: _unary,
    _ast.BinOp: _binary,
    _ast.Compare: _compare,
    _ast.IfExp: _choice,
    _ast.List: _list,
    _ast.Tuple: _list,
    _ast.Set: _set,
    _ast.Dict: _dict,
    _ast.Subscript: _subscript,
    _ast.JoinedStr: _text,
    _ast.ListComp: _comprehension,
    _ast.GeneratorExp: _comprehension,
    _ast.SetComp: _comprehension,
    _ast.DictComp: _comprehension,
    _ast.Call: lambda tree: call_of(tree, _made, _items),
    _ast.NamedExpr: _named,
    _ast.Lambda: lambda tree: lambda one: Lambda(tree, one.frame),
}
