"""The value of an expression of the validators, with true, false and unknown.

The notation is a small part of Python's: names, fields, literals, comparisons, `and`, `or`, `not`, arithmetic, `if`
expressions, comprehensions over known lists, and calls of the functions in `BUILTIN` and of the program's own ones.
`...` stands for what could not be read. Python's parser gives the tree; nothing of upstream is compiled or called.
"""

from __future__ import annotations

import _ast
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from megatron_hcp.validators.builtin import BUILTIN, method
from megatron_hcp.validators.operations import FAULTS, compared, iterable, joined, operate, operate_one
from megatron_hcp.validators.trees import dotted
from megatron_hcp.validators.values import ABSENT, NOT_READ, STUMBLES, Lambda, NotKnown, Symbol, Thing, merged, truth
from megatron_hcp.validators.words import PlainWords

_ENVIRON = Symbol("environ")


class Expressions(PlainWords):
    """Evaluates expressions; what the program's own functions do is in the class that builds on it."""

    def __init__(self) -> None:
        self.frame = {}

    def call_unit(self, name: str, given: list[Any], named: dict[str, Any]) -> Any:
        raise NotImplementedError

    def has_unit(self, name: str) -> bool:
        """Whether the program has a function or class of that name; alone, expressions have none."""
        return False

    def made(self, kind: str, fields: dict[str, Any], key: str | None) -> Any:
        raise NotImplementedError

    def outside(self, name: str, given: list[Any]) -> Any:
        """What a function says of the machine or the model: `env`, `at_least`, `installed`, `type_of_model`, …"""
        return NOT_READ

    def change(self, thing: Thing, name: Any, value: Any) -> None:
        raise NotImplementedError

    def fields_of(self, name: str) -> list[str] | None:
        raise NotImplementedError

    def method_of(self, kind: str, name: str) -> str | None:
        """The unit of a class's method, or of its bases'."""

    def kinds_of(self, kind: str) -> frozenset[str] | None:
        """A class's name and those of its bases; None for a class that isn't known."""
        return None

    def value(self, tree: Any) -> Any:
        visit = _VISITS.get(type(tree))
        if visit is None:
            return NOT_READ
        try:
            return visit(self, tree)
        except FAULTS:
            return NOT_READ

    def field(self, owner: Any, name: str) -> Any:
        if isinstance(owner, Thing):
            found = owner.fields.get(name, ABSENT)
            return NOT_READ if found is ABSENT else found
        if isinstance(owner, NotKnown):
            return owner
        if isinstance(owner, Symbol):
            if name == "name":
                return str(owner).rpartition(".")[2]
            return NOT_READ if name == "value" else Symbol(f"{owner}.{name}")
        return NOT_READ

    def _name(self, tree: Any) -> Any:
        frame = self.frame
        name = tree.id
        return frame[name] if name in frame else Symbol(name)

    def _boolop(self, tree: Any) -> Any:
        return joined(map(self.value, tree.values), isinstance(tree.op, _ast.Or))

    def _unary(self, tree: Any) -> Any:
        value = self.value(tree.operand)
        if isinstance(tree.op, _ast.Not):
            value = truth(value)
            return value if isinstance(value, NotKnown) else not value
        return value if isinstance(value, NotKnown) else operate_one(type(tree.op), value)

    def _binary(self, tree: Any) -> Any:
        return operate(type(tree.op), self.value(tree.left), self.value(tree.right))

    def _compare(self, tree: Any) -> Any:
        left = self.value(tree.left)
        unknown: list[Any] = []
        for op, part in zip(tree.ops, tree.comparators):
            right = self.value(part)
            found = compared(type(op), left, right)
            if found is STUMBLES and not unknown:
                return found
            if isinstance(found, NotKnown):
                unknown.append(found)
            elif not found:
                return False
            left = right
        return merged(*unknown) if unknown else True

    def _choice(self, tree: Any) -> Any:
        test = truth(self.value(tree.test))
        if isinstance(test, NotKnown):
            return merged(test, self.value(tree.body), self.value(tree.orelse))
        return self.value(tree.body if test else tree.orelse)

    def _list(self, tree: Any) -> Any:
        items = list(self._items(tree.elts))
        return tuple(items) if isinstance(tree, _ast.Tuple) else items

    def _set(self, tree: Any) -> Any:
        items = list(self._items(tree.elts))
        return merged(items) if any(isinstance(item, NotKnown) for item in items) else frozenset(items)

    def _items(self, trees: Any) -> Iterator[Any]:
        for tree in trees:
            if isinstance(tree, _ast.Starred):
                yield from iterable(self.value(tree.value))
            else:
                yield self.value(tree)

    def _dict(self, tree: Any) -> Any:
        fields: dict[Any, Any] = {}
        for key, value in zip(tree.keys, tree.values):
            if key is None:
                more = self.value(value)
                if not isinstance(more, Thing):
                    return NOT_READ
                fields |= more.fields
            else:
                name = self.value(key)
                if isinstance(name, NotKnown):
                    return name
                fields[name] = self.value(value)
        return Thing(fields)

    def _subscript(self, tree: Any) -> Any:
        owner = self.value(tree.value)
        if isinstance(owner, NotKnown):
            return owner
        if isinstance(tree.slice, _ast.Slice):
            parts = [part and self.value(part) for part in (tree.slice.lower, tree.slice.upper, tree.slice.step)]
            return merged(*parts) if any(isinstance(part, NotKnown) for part in parts) else owner[slice(*parts)]
        key = self.value(tree.slice)
        if isinstance(key, NotKnown):
            return key
        if isinstance(owner, Thing):
            return owner.fields.get(key, STUMBLES if owner.is_closed and owner.key is not None else NOT_READ)
        return Symbol(f"{owner}.{key}") if isinstance(owner, Symbol) else owner[key]

    def _text(self, tree: Any) -> Any:
        parts = [
            self.value(part.value) if isinstance(part, _ast.FormattedValue) else part.value for part in tree.values
        ]
        if any(isinstance(part, NotKnown) for part in parts):
            return merged(*parts)
        return "".join(map(str, parts)) if all(isinstance(part, (str, int)) for part in parts) else NOT_READ

    def _comprehension(self, tree: Any) -> Any:
        if len(tree.generators) != 1:
            return NOT_READ
        loop = tree.generators[0]
        owner = self.value(loop.iter)
        if isinstance(owner, NotKnown):
            return owner
        found: list[Any] = []
        before = dict(self.frame)
        try:
            for item in iterable(owner):
                self.bind(loop.target, item)
                tests = [truth(self.value(test)) for test in loop.ifs]
                if any(isinstance(test, NotKnown) for test in tests):
                    return merged(*tests)
                if all(tests):
                    found.append(
                        (self.value(tree.key), self.value(tree.value))
                        if isinstance(tree, _ast.DictComp)
                        else self.value(tree.elt)
                    )
        finally:
            self.frame.clear()
            self.frame.update(before)
        if isinstance(tree, _ast.DictComp):
            return Thing(dict(found))
        return frozenset(found) if isinstance(tree, _ast.SetComp) else found

    def bind(self, target: Any, value: Any) -> None:
        """Gives names of this frame a value; one that does not fit leaves them unknown."""
        if isinstance(target, _ast.Name):
            self.frame[target.id] = value
        elif isinstance(target, (_ast.Tuple, _ast.List)):
            fits = isinstance(value, (list, tuple)) and len(value) == len(target.elts)
            rest = merged(value) if isinstance(value, NotKnown) else NOT_READ
            for place, part in enumerate(target.elts):
                self.bind(part, value[place] if fits else rest)

    def _named(self, tree: Any) -> Any:
        value = self.value(tree.value)
        self.bind(tree.target, value)
        return value

    def _call(self, tree: Any) -> Any:
        given = list(self._items(tree.args))
        named: dict[str, Any] = {}
        for keyword in tree.keywords:
            value = self.value(keyword.value)
            if keyword.arg is not None:
                named[keyword.arg] = value
            elif isinstance(value, Thing):
                named |= value.fields
            else:
                return NOT_READ
        if isinstance(tree.func, _ast.Attribute):
            name = dotted(tree.func)
            if name is not None and self.has_unit(name):
                return self.call_unit(name, given, named)
            owner = self.value(tree.func.value)
            found = self.method_of(owner.kind, tree.func.attr) if isinstance(owner, Thing) else None
            if found is not None:
                return self.call_unit(found, [owner, *given], named)
            return self._method(owner, tree.func.attr, given)
        if not isinstance(tree.func, _ast.Name):
            return NOT_READ
        name = tree.func.id
        called = self.frame.get(name, name)
        if isinstance(called, Lambda):
            return self.applied(called, given)
        if isinstance(called, Symbol):
            called = str(called)
        if not isinstance(called, str):
            return called if isinstance(called, NotKnown) else NOT_READ
        if called in BUILTIN:
            return BUILTIN[called](self, given)
        if self.has_unit(called):
            return self.call_unit(called, given, named)
        return self.outside(called, given)

    def applied(self, called: Lambda, given: list[Any]) -> Any:
        """What a function written as an expression gives for these arguments, which are by position."""
        names = [argument.arg for argument in called.tree.args.args]
        before, self.frame = self.frame, {**called.frame, **dict(zip(names, given))}
        try:
            return self.value(called.tree.body)
        finally:
            self.frame = before

    def _method(self, owner: Any, name: str, given: list[Any]) -> Any:
        if isinstance(owner, NotKnown):
            return owner
        if owner == _ENVIRON and name == "get":
            return self.outside("env", given)
        if isinstance(owner, Thing) and owner.kind == "dict":
            return self._dict_method(owner, name, given)
        return method(owner, name, given)

    def _dict_method(self, owner: Thing, name: str, given: list[Any]) -> Any:
        if name in ("keys", "values", "items"):
            return list(getattr(owner.fields, name)())
        if given and isinstance(given[0], NotKnown):
            return given[0]
        default = NOT_READ if not owner.is_closed else given[1] if len(given) > 1 else None
        found = owner.fields.get(given[0], default) if name in ("get", "pop") else NOT_READ
        if name == "pop" and given[0] in owner.fields:
            self.change(owner, given[0], ABSENT)
        return found


_VISITS: Mapping[type, Callable[[Any, Any], Any]] = {
    _ast.Constant: lambda _, tree: NOT_READ if tree.value is ... else tree.value,
    _ast.Name: Expressions._name,
    _ast.Attribute: lambda self, tree: self.field(self.value(tree.value), tree.attr),
    _ast.BoolOp: Expressions._boolop,
    _ast.UnaryOp: Expressions._unary,
    _ast.BinOp: Expressions._binary,
    _ast.Compare: Expressions._compare,
    _ast.IfExp: Expressions._choice,
    _ast.List: Expressions._list,
    _ast.Tuple: Expressions._list,
    _ast.Set: Expressions._set,
    _ast.Dict: Expressions._dict,
    _ast.Subscript: Expressions._subscript,
    _ast.JoinedStr: Expressions._text,
    _ast.ListComp: Expressions._comprehension,
    _ast.GeneratorExp: Expressions._comprehension,
    _ast.SetComp: Expressions._comprehension,
    _ast.DictComp: Expressions._comprehension,
    _ast.Call: Expressions._call,
    _ast.NamedExpr: Expressions._named,
    _ast.Lambda: lambda self, tree: Lambda(tree, self.frame),
}
