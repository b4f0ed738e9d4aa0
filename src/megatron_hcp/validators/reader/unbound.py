"""Names that only the branches of a chain of conditions assign, and that upstream reads after it.

Where none of the conditions holds, upstream ends in an UnboundLocalError: that one holds is a guard of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache

_APART = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.IfExp, ast.BoolOp,
          ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)  # fmt: skip
"""What Python does not come to, or not at once, with the statement around it."""

_NAMED = (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)


@lru_cache(maxsize=64)
def with_unbound_checks(node: ast.FunctionDef) -> tuple[ast.stmt, ...]:
    """A function's statements, with an assert behind each such chain among them.

    Chains within loops and blocks are left as they are: a name may be assigned there on another way.
    """
    return tuple(_checked(node))


def _checked(node: ast.FunctionDef) -> Iterator[ast.stmt]:
    for place, line in enumerate(node.body):
        yield line
        if isinstance(line, ast.If) and (tests := _tests(line)):
            inside = _bound([line])
            if inside and (inside := inside & _read_first(node.body[place + 1 :])):
                inside -= _bound([*node.body[:place], node.args])
            if names := sorted(inside):
                either = ast.BoolOp(ast.Or(), tests) if len(tests) > 1 else tests[0]
                yield ast.Assert(either, ast.Constant(f"UnboundLocalError: {names[0]} is not assigned"))


def _tests(line: ast.If) -> list[ast.expr]:
    """The conditions of a chain of `if` and `elif`; none if it has an `else`, or asks something that changes."""
    tests = [line.test]
    while len(line.orelse) == 1 and isinstance(line.orelse[0], ast.If):
        line = line.orelse[0]
        tests.append(line.test)
    calls = any(isinstance(one, (ast.Call, ast.NamedExpr)) for test in tests for one in ast.walk(test))
    return [] if line.orelse or calls or _is_changed(tests) else tests


def _is_changed(tests: Sequence[ast.expr]) -> bool:
    """Whether the conditions read more than local names and constants: a branch may change a field."""
    return any(isinstance(one, (ast.Attribute, ast.Subscript)) for test in tests for one in ast.walk(test))


def _bound(trees: Sequence[ast.AST]) -> set[str]:
    """The names that statements may assign."""
    names: set[str] = set()
    for one in (node for tree in trees for node in _of_one_scope(tree)):
        if isinstance(one, ast.Name) and isinstance(one.ctx, (ast.Store, ast.Del)):
            names.add(one.id)
        elif isinstance(one, ast.arg):
            names.add(one.arg)
        elif isinstance(one, ast.alias):
            names.add(one.asname or one.name.partition(".")[0])
        elif isinstance(one, _NAMED) and one.name:
            names.add(one.name)
    nodes = (node for tree in trees for node in ast.walk(tree))
    return names.union(*(one.names for one in nodes if isinstance(one, (ast.Global, ast.Nonlocal))))


def _of_one_scope(node: ast.AST) -> Iterator[ast.AST]:
    """A tree's nodes without those in functions and classes, which have names of their own."""
    yield node
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        for one in ast.iter_child_nodes(node):
            yield from _of_one_scope(one)


def _read_first(lines: Sequence[ast.stmt]) -> set[str]:
    """The names that statements read, come what may, before they assign them."""
    read: set[str] = set()
    bound: set[str] = set()
    for line in lines:
        if isinstance(line, (ast.Expr, ast.Assign, ast.AnnAssign, ast.Return)):
            read |= {one.id for one in _at_once(line) if isinstance(one.ctx, ast.Load)} - bound
        elif isinstance(line, ast.If):
            read |= {one.id for one in _at_once(line.test) if isinstance(one.ctx, ast.Load)} - bound
        bound |= _bound([line])
        if any(isinstance(one, (ast.Return, ast.Raise, ast.Try)) for one in ast.walk(line)):
            break
    return read


def _at_once(node: ast.AST) -> Iterator[ast.Name]:
    if isinstance(node, ast.Name):
        yield node
    for one in ast.iter_child_nodes(node):
        if not isinstance(one, _APART):
            yield from _at_once(one)
