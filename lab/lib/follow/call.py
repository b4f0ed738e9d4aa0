"""One call of a followed function, line by line.

Where a condition is not known, both sides are followed and whatever they write is unknown afterwards. What a call into
code that is not followed is handed counts as changed.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from follow.objects import Objects
from follow.values import UNKNOWN, Function, Node, NotFollowed, Raised, Unknown
from follow.world import World


class _Returned(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class Call(Objects):
    """The names of one call, and how its lines change them."""

    def __init__(self, world: World, module: str, names: Mapping[str, Any] = {}, depth: int = 0) -> None:
        super().__init__(world, module, depth)
        self.names = dict(names)
        self._written: list[set[str]] = []

    def follow(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return Call(self.world, function.module, depth=self.depth + 1).run(function, args, kwargs)

    def run(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What the function returns; `UNKNOWN` where that is not known."""
        code = function.code
        self.names = dict(function.around)
        self._bind(code.args, [*function.bound, *args], {**function.named, **kwargs})
        if isinstance(code, ast.Lambda):
            return self.value(code.body)
        doubts = self.world.doubts
        try:
            self.block(code.body)
            return None if self.world.doubts == doubts else UNKNOWN
        except _Returned as returned:
            return returned.value if self.world.doubts == doubts else UNKNOWN
        except Raised:
            if self.world.doubts == doubts:
                raise
            return UNKNOWN  # an earlier line may have left the function
        finally:
            self.world.doubts = doubts

    def _bind(self, parameters: ast.arguments, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        plain = [*parameters.posonlyargs, *parameters.args]
        defaults = parameters.defaults
        for place, parameter in enumerate(plain):
            at = place - (len(plain) - len(defaults))
            if place < len(args):
                self.names[parameter.arg] = args[place]
            elif parameter.arg in kwargs:
                self.names[parameter.arg] = kwargs.pop(parameter.arg)
            else:
                self.names[parameter.arg] = self.value(defaults[at]) if at >= 0 else UNKNOWN
        for parameter, default in zip(parameters.kwonlyargs, parameters.kw_defaults):
            given = (
                kwargs.pop(parameter.arg, None) if parameter.arg in kwargs else self.value(default) if default else None
            )
            self.names[parameter.arg] = given if default or given is not None else UNKNOWN
        if parameters.vararg:
            self.names[parameters.vararg.arg] = tuple(args[len(plain) :])
        if parameters.kwarg:
            self.names[parameters.kwarg.arg] = kwargs

    def block(self, lines: Sequence[ast.stmt]) -> None:
        for line in lines:
            self._line(line)

    def _line(self, line: ast.stmt) -> None:
        if isinstance(line, ast.Return):
            raise _Returned(self.value(line.value) if line.value else None)
        if isinstance(line, ast.Raise):
            raise Raised(ast.unparse(line)[:120])
        if isinstance(line, ast.Assign):
            value = self.value(line.value)
            for target in line.targets:
                self.assign(target, value)
        elif isinstance(line, ast.AnnAssign):
            if line.value:
                self.assign(line.target, self.value(line.value))
        elif isinstance(line, ast.AugAssign):
            self.assign(line.target, self.operate(line.op, self.value(_loaded(line.target)), self.value(line.value)))
        elif isinstance(line, ast.Expr):
            self.value(line.value)
        elif isinstance(line, ast.If):
            self._if(line)
        elif isinstance(line, ast.For):
            self._for(line)
        elif isinstance(line, ast.Try):
            self._try(line)
        elif isinstance(line, ast.With):
            self._with(line)
        elif isinstance(line, ast.Import | ast.ImportFrom):
            for alias in line.names:
                self.assign_name((alias.asname or alias.name).partition(".")[0], self.imported(line, alias))
        elif isinstance(line, ast.FunctionDef):
            known = Function(self.module, line, self.names)
            self.assign_name(line.name, known if not line.decorator_list else UNKNOWN)
        elif isinstance(line, ast.Delete):
            for target in line.targets:
                self.assign(target, UNKNOWN)
        elif not isinstance(line, ast.Pass | ast.Assert | ast.Global):
            self._doubtful([item for item in ast.walk(line) if isinstance(item, ast.stmt) and item is not line])

    def _if(self, line: ast.If) -> None:
        test = self.truth(line.test)
        if not isinstance(test, Unknown):
            self.block(line.body if test else line.orelse)
        elif _only_raises(line.body):
            self.block(line.orelse)
        elif _only_raises(line.orelse):
            self.block(line.body)
        else:
            self._doubtful(line.body, line.orelse)

    def _for(self, line: ast.For) -> None:
        items = self.value(line.iter)
        leaves = any(isinstance(item, ast.Break | ast.Continue) for item in ast.walk(line))
        if isinstance(items, list | tuple | dict | range) and not leaves and len(items) < 2000:
            for item in list(items):
                self.assign(line.target, item)
                self._bind_loop(line.target, item)  # known inside the loop, however doubtful the loop is
                self.block(line.body)
            self.block(line.orelse)
        else:
            self._doubtful([ast.Assign([line.target], ast.Constant(None)), *line.body])

    def _try(self, line: ast.Try) -> None:
        if all(isinstance(item, ast.Import | ast.ImportFrom) for item in line.body):
            self.block(line.body)
        else:
            self._doubtful(line.body, *(handler.body for handler in line.handlers), line.orelse)
        self.block(line.finalbody)

    def _with(self, line: ast.With) -> None:
        """The body runs, as no recipe's manager swallows an error but `suppress`; what is behind `as` is not known."""
        for item in line.items:
            if item.optional_vars is not None:
                self.assign(item.optional_vars, UNKNOWN)
        if any("suppress" in ast.unparse(item.context_expr) for item in line.items):
            self._doubtful(line.body)
        else:
            self.block(line.body)

    def _doubtful(self, *blocks: Sequence[ast.stmt]) -> None:
        """Follows blocks that may run or not: all that they write is unknown then."""
        self._written.append(set())
        self.world.doubts += 1
        stays = False
        for block in blocks:
            try:
                self.block(block)
            except _Returned:
                stays = True  # what follows in this function may not run either
            except Raised:
                pass
        self.world.doubts -= 0 if stays else 1
        for name in self._written.pop():
            self.names[name] = UNKNOWN
            for above in self._written:
                above.add(name)

    def assign_name(self, name: str, value: Any) -> None:
        doubtful = bool(self.world.doubts)
        self.names[name] = UNKNOWN if doubtful and not isinstance(value, Node | Function) else value
        if self._written:
            self._written[-1].add(name)

    def assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.assign_name(target.id, value)
        elif isinstance(target, ast.Attribute):
            self.set_field(self.value(target.value), target.attr, value)
        elif isinstance(target, ast.Subscript):
            self._set_item(self.value(target.value), self.value(target.slice), value)
        elif isinstance(target, ast.Tuple | ast.List):
            known = isinstance(value, list | tuple) and len(value) == len(target.elts)
            for place, item in enumerate(target.elts):
                self.assign(item, value[place] if known else UNKNOWN)

    def _set_item(self, owner: Any, key: Any, value: Any) -> None:
        if isinstance(owner, dict | list):
            if isinstance(key, Unknown | Node) or (isinstance(owner, list) and not isinstance(key, int)):
                raise NotFollowed("an item under an unknown key")
            owner[key] = UNKNOWN if self.world.doubts else value


def _only_raises(body: Sequence[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Raise)


def _loaded(target: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(target), mode="eval").body
