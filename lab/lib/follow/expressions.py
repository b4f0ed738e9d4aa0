"""The value of an expression in followed code."""

from __future__ import annotations

import ast
import operator
import signal
from collections.abc import Iterator
from typing import Any

from follow.values import UNKNOWN, Builtin, Class, Function, Member, Module, Node, Unknown
from follow.world import World

_OPERATORS: dict[type, Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Div: operator.truediv, ast.Pow: operator.pow, ast.BitOr: operator.or_,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda item, owner: item in owner, ast.NotIn: lambda item, owner: item not in owner,
    ast.USub: operator.neg, ast.Not: operator.not_, ast.UAdd: operator.pos,
}  # fmt: skip
_FAULTS = (TypeError, ZeroDivisionError, KeyError, ValueError, IndexError, AttributeError)
_LONGEST = 100_000


def is_known(value: Any) -> bool:
    """Whether a value is known through and through."""
    if isinstance(value, Unknown):
        return False
    if isinstance(value, dict):
        return all(is_known(item) for item in value.values())
    return all(is_known(item) for item in value) if type(value) in (list, tuple) else True


class Expressions:
    """Evaluates; the names of a call and what calls do are in the classes that build on it."""

    names: dict[str, Any]

    def __init__(self, world: World, module: str, depth: int) -> None:
        self.world, self.module, self.depth = world, module, depth

    def value(self, item: ast.expr) -> Any:
        visit = getattr(self, f"_{type(item).__name__.lower()}", None)
        try:
            return visit(item) if visit is not None else UNKNOWN
        except _FAULTS:
            return UNKNOWN

    def truth(self, item: ast.expr) -> Any:
        """True, False, or `UNKNOWN`; one side of an `and` can decide where the other is not known."""
        if isinstance(item, ast.UnaryOp) and isinstance(item.op, ast.Not):
            test = self.truth(item.operand)
            return test if isinstance(test, Unknown) else not test
        if isinstance(item, ast.BoolOp):
            decides = isinstance(item.op, ast.Or)
            known = True
            for part in item.values:
                test = self.truth(part)
                if isinstance(test, Unknown):
                    known = False
                elif test is decides:
                    return decides
            return not decides if known else UNKNOWN
        return _truth(self.value(item))

    def constant(self, module: str, item: ast.expr) -> Any:
        raise NotImplementedError

    def field(self, owner: Any, name: str) -> Any:
        raise NotImplementedError

    def call(self, item: ast.Call) -> Any:
        raise NotImplementedError

    def meaning(self, module: str, name: str) -> Any:
        """What a name means at the top of a module."""
        found = self.world.named(module, name)
        if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], ast.expr):
            return self.constant(*found)
        return found

    def imported(self, line: ast.Import | ast.ImportFrom, alias: ast.alias) -> Any:
        """What an import inside a function binds."""
        if isinstance(line, ast.Import):
            return Module(alias.name if alias.asname else alias.name.partition(".")[0])
        source = self.world.modules.source(self.module, line)
        return self.meaning(source, alias.name) if self.world.modules.file(source) else UNKNOWN

    def operate(self, op: ast.AST, *operands: Any) -> Any:
        if not all(is_known(operand) for operand in operands):
            return UNKNOWN
        if any(isinstance(operand, Node) for operand in operands) and not isinstance(op, ast.Is | ast.IsNot):
            return UNKNOWN
        if isinstance(op, ast.Mult) and _is_long(operands):
            return UNKNOWN
        return _OPERATORS[type(op)](*operands) if type(op) in _OPERATORS else UNKNOWN

    def _constant(self, item: ast.Constant) -> Any:
        return item.value

    def _name(self, item: ast.Name) -> Any:
        return self.names[item.id] if item.id in self.names else self.meaning(self.module, item.id)

    def _attribute(self, item: ast.Attribute) -> Any:
        if isinstance(item.value, ast.Name) and item.value.id == "torch" and item.value.id not in self.names:
            return Member(f"torch.{item.attr}")
        if isinstance(item.value, ast.Name) and item.value.id == "signal" and hasattr(signal, item.attr):
            return int(getattr(signal, item.attr))
        return self.field(self.value(item.value), item.attr)

    def _list(self, item: ast.List) -> Any:
        return list(self._elements(item.elts))

    def _tuple(self, item: ast.Tuple) -> Any:
        return tuple(self._elements(item.elts))

    def _set(self, item: ast.Set) -> Any:
        values = list(self._elements(item.elts))
        return set(values) if is_known(values) else UNKNOWN

    def _elements(self, items: list[ast.expr]) -> Iterator[Any]:
        for item in items:
            if not isinstance(item, ast.Starred):
                yield self.value(item)
                continue
            more = self.value(item.value)
            if not isinstance(more, list | tuple | range):
                raise ValueError("unknown items")
            yield from more

    def _dict(self, item: ast.Dict) -> Any:
        found: dict[Any, Any] = {}
        for key, value in zip(item.keys, item.values):
            if key is None:
                more = self.value(value)
                if not isinstance(more, dict):
                    return UNKNOWN
                found |= more
                continue
            name = self.value(key)
            if not is_known(name):
                return UNKNOWN
            found[name] = self.value(value)
        return found

    def _call(self, item: ast.Call) -> Any:
        return self.call(item)

    def _binop(self, item: ast.BinOp) -> Any:
        return self.operate(item.op, self.value(item.left), self.value(item.right))

    def _unaryop(self, item: ast.UnaryOp) -> Any:
        return self.truth(item) if isinstance(item.op, ast.Not) else self.operate(item.op, self.value(item.operand))

    def _compare(self, item: ast.Compare) -> Any:
        values = [self.value(part) for part in (item.left, *item.comparators)]
        known = True
        for place, op in enumerate(item.ops):
            left, right = values[place : place + 2]
            if isinstance(op, ast.In | ast.NotIn) and isinstance(right, Node):
                return UNKNOWN
            if isinstance(left, Node) and right is None and isinstance(op, ast.Eq | ast.NotEq):
                found: Any = isinstance(op, ast.NotEq)
            else:
                found = self.operate(op, left, right)
            if isinstance(found, Unknown):
                known = False
            elif not found:
                return False
        return True if known else UNKNOWN

    def _boolop(self, item: ast.BoolOp) -> Any:
        stops_at = isinstance(item.op, ast.Or)
        value: Any = None
        for part in item.values:
            value = self.value(part)
            test = _truth(value)
            if isinstance(test, Unknown):
                return UNKNOWN
            if test is stops_at:
                return value
        return value

    def _ifexp(self, item: ast.IfExp) -> Any:
        test = self.truth(item.test)
        return UNKNOWN if isinstance(test, Unknown) else self.value(item.body if test else item.orelse)

    def _subscript(self, item: ast.Subscript) -> Any:
        owner = self.value(item.value)
        if isinstance(item.slice, ast.Slice):
            parts = [
                self.value(part) if part else None for part in (item.slice.lower, item.slice.upper, item.slice.step)
            ]
            known = isinstance(owner, list | tuple | str) and is_known(parts)
            return owner[slice(*parts)] if known else UNKNOWN
        key = self.value(item.slice)
        if isinstance(owner, list | tuple | dict | str) and is_known(key):
            return owner[key]
        return UNKNOWN

    def _joinedstr(self, item: ast.JoinedStr) -> Any:
        parts = [
            self.value(part.value) if isinstance(part, ast.FormattedValue) else self.value(part) for part in item.values
        ]
        plain = all(isinstance(part, str | int) for part in parts)
        formats = any(isinstance(part, ast.FormattedValue) and part.format_spec for part in item.values)
        return "".join(map(str, parts)) if plain and not formats else UNKNOWN

    def _lambda(self, item: ast.Lambda) -> Any:
        return Function(self.module, item, self.names)

    def _listcomp(self, item: ast.ListComp) -> Any:
        return list(self._comprehended(item, lambda: self.value(item.elt)))

    def _setcomp(self, item: ast.SetComp) -> Any:
        values = list(self._comprehended(item, lambda: self.value(item.elt)))
        return set(values) if is_known(values) else UNKNOWN

    def _generatorexp(self, item: ast.GeneratorExp) -> Any:
        return list(self._comprehended(item, lambda: self.value(item.elt)))

    def _dictcomp(self, item: ast.DictComp) -> Any:
        return dict(self._comprehended(item, lambda: (self.value(item.key), self.value(item.value))))

    def _comprehended(self, item: Any, make: Any) -> Iterator[Any]:
        if len(item.generators) != 1:
            raise ValueError("several loops")
        loop = item.generators[0]
        items = self.value(loop.iter)
        if not isinstance(items, list | tuple | dict | range | set) or len(items) > _LONGEST:
            raise ValueError("unknown items")
        before = dict(self.names)
        for one in items:
            self._bind_loop(loop.target, one)
            tests = [self.truth(test) for test in loop.ifs]
            if any(isinstance(test, Unknown) for test in tests):
                raise ValueError("unknown items")
            if all(tests):
                yield make()
        self.names = before

    def _bind_loop(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Tuple) and isinstance(value, list | tuple) and len(value) == len(target.elts):
            for item, part in zip(target.elts, value):
                self._bind_loop(item, part)
        else:
            raise ValueError("unknown items")


def _is_long(operands: tuple[Any, ...]) -> bool:
    """Whether a product repeats a sequence more often than a recipe does."""
    often = any(isinstance(one, int) and one > _LONGEST for one in operands)
    return often and any(isinstance(one, str | list | tuple) for one in operands)


def _truth(value: Any) -> Any:
    if isinstance(value, Unknown):
        return UNKNOWN
    return True if isinstance(value, Node | Class | Function | Module | Builtin) else bool(value)
