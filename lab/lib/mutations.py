"""What can be broken in a piece of Python: comparisons, constants, conditions, version bounds, early returns.

Pure: `mutations(node)` lists the changes to a function, lambda or assignment; each changes a copy of its module's tree.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

VERSION = re.compile(r"\d+\.\d+(\.\d+)?")
FLIPS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPPOSITE = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt}
CALLS = {"any": "all", "all": "any", "min": "max", "max": "min"}
WIDEST = 160
"""Characters of code that are shown."""
SHOWN = (ast.expr, ast.Assign, ast.AnnAssign)
"""What shows where a constant stands."""
OVERRIDES = ("severity", "effect", "stage")


@dataclass(frozen=True)
class Mutation:
    """One change: what it was, what it becomes, and how to make it in a tree of the same source."""

    before: str
    after: str
    line: int
    path: tuple[tuple[str, int | None], ...]
    """From the root of the module's tree to the node that is replaced."""
    make: Callable[[Any], Any]
    """The node's replacement; None drops a statement."""

    def __str__(self) -> str:
        return f"{self.before} -> {self.after}"

    def apply(self, tree: ast.Module) -> ast.Module:
        """The tree with the change made in a copy of its statement."""
        (_, number), *way, (field, index) = self.path
        assert number is not None
        parent: Any = copy.deepcopy(tree.body[number])
        changed = ast.Module([*tree.body[:number], parent, *tree.body[number + 1 :]], tree.type_ignores)
        for name, position in way:
            parent = getattr(parent, name) if position is None else getattr(parent, name)[position]
        old = getattr(parent, field) if index is None else getattr(parent, field)[index]
        new = self.make(old)
        new = ast.Pass() if new is None else new
        ast.copy_location(new, old)
        if index is None:
            setattr(parent, field, new)
        else:
            getattr(parent, field)[index] = new
        ast.fix_missing_locations(changed.body[number])
        return changed


Path = tuple[tuple[str, int | None], ...]


def mutations(node: ast.AST, path: Path) -> Iterator[Mutation]:
    """Every change to the code below a node, whose place in its module's tree is `path`; texts are left alone."""
    for field, value in ast.iter_fields(node):
        if field in ("decorator_list", "returns", "annotation", "args", "keywords") and not isinstance(node, ast.Call):
            continue
        children = value if isinstance(value, list) else [value]
        for index, child in enumerate(children):
            if isinstance(child, ast.AST):
                place = (*path, (field, index if isinstance(value, list) else None))
                yield from _of(child, place, node)
                yield from mutations(child, place)


def _of(node: ast.AST, path: Path, parent: ast.AST) -> Iterator[Mutation]:
    def change(after: Callable[[Any], Any]) -> Mutation:
        replaced = after(copy.deepcopy(node))
        line = getattr(node, "lineno", 0) or getattr(parent, "lineno", 0)
        if isinstance(node, ast.Constant) and isinstance(parent, SHOWN) and len(ast.unparse(parent)) <= WIDEST:
            return Mutation(_short(parent), _short(_with(parent, path[-1], replaced)), line, path, after)
        return Mutation(_short(node), "(dropped)" if replaced is None else _short(replaced), line, path, after)

    match node:
        case ast.Compare():
            yield from _comparisons(node, change)
        case ast.BoolOp():
            yield change(_flipped)
            yield from (change(_without(index)) for index in range(len(node.values)))
        case ast.UnaryOp(op=ast.Not()):
            yield change(lambda old: old.operand)
        case ast.Constant(value=str(text)) if VERSION.fullmatch(text) and not isinstance(parent, ast.JoinedStr):
            yield from (change(_constant(other)) for other in steps(text))
        case ast.Constant(value=int(number)) if not isinstance(number, bool) and not isinstance(parent, ast.Compare):
            yield change(_constant(number + 1))
        case ast.Call(func=ast.Name(id=name)) if name in CALLS:
            yield change(_called(CALLS[name]))
        case ast.Call(func=ast.Attribute(attr="startswith" | "endswith"), args=[ast.Constant(value=str(text))]):
            yield change(_argument(f"{text}?"))
        case ast.Call(func=ast.Name(id="Problem")):
            yield from (change(_override(item.arg)) for item in node.keywords if item.arg in OVERRIDES)
        case ast.comprehension(ifs=conditions):
            yield from (change(_condition_dropped(index)) for index in range(len(conditions)))
        case ast.If(orelse=[]) if isinstance(node.body[-1], ast.Return | ast.Raise | ast.Continue):
            yield change(lambda old: None)
    if isinstance(node, ast.If | ast.IfExp) and isinstance(node.test, ast.Name | ast.Attribute | ast.Call):
        yield change(_negated_test)


def _comparisons(node: ast.Compare, change: Callable[..., Mutation]) -> Iterator[Mutation]:
    """Each operator flipped, each number shifted both ways, each word altered."""
    operands = [node.left, *node.comparators]
    for index, op in enumerate(node.ops):
        numbers = any(isinstance(item, ast.Constant) and _is_number(item.value) for item in operands[index : index + 2])
        flips = FLIPS[type(op)]
        if numbers and type(op) in OPPOSITE:
            flips = (OPPOSITE[type(op)],)  # beside a whole number the shift below says the same as < for <=
        yield from (change(_operator(index, flip)) for flip in flips)
    for position, operand in enumerate(operands):
        if not isinstance(operand, ast.Constant):
            items = getattr(operand, "elts", [])
            for which, item in enumerate(items):
                if isinstance(item, ast.Constant) and len(items) > 1:
                    yield change(_element_dropped(position, which))
            continue
        value: Any = operand.value
        if _is_number(value):
            yield from (change(_operand(position, other)) for other in (value + 1, value - 1))
        elif isinstance(value, str) and not VERSION.fullmatch(value):
            yield change(_operand(position, f"{value}?"))


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def steps(version: str) -> tuple[str, str]:
    """The bound one step up and one down: the patch number where one is written and not 0, else the minor number.

    >>> steps("2.19"), steps("0.4.0"), steps("0.4.2"), steps("3.0")
    (('2.20', '2.18'), ('0.5.0', '0.3.0'), ('0.4.3', '0.4.1'), ('3.1', '2.99'))
    """
    parts = [int(part) for part in version.split(".")]
    place = 2 if len(parts) == 3 and parts[2] else 1
    up, down = list(parts), list(parts)
    up[place] += 1
    if parts[place]:
        down[place] -= 1
    else:
        down[place - 1] -= 1
        down[place] = 99
    return ".".join(map(str, up)), ".".join(map(str, down))


def _short(node: ast.AST) -> str:
    if isinstance(node, ast.If):
        return f"if {ast.unparse(node.test)}: {_short(node.body[-1])}"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Problem":
        kept = [f"{item.arg}={ast.unparse(item.value)}" for item in node.keywords if item.arg in OVERRIDES]
        return f"Problem({', '.join(kept) or 'no override'})"
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 3]}..."


def _with(parent: ast.AST, place: tuple[str, int | None], child: ast.AST) -> ast.AST:
    """A copy in which one child is replaced."""
    changed = copy.deepcopy(parent)
    field, index = place
    if index is None:
        setattr(changed, field, child)
    else:
        getattr(changed, field)[index] = child
    return changed


def _flipped(old: ast.BoolOp) -> ast.BoolOp:
    return ast.BoolOp(ast.Or() if isinstance(old.op, ast.And) else ast.And(), old.values)


def _without(index: int) -> Callable[[ast.BoolOp], ast.expr]:
    def make(old: ast.BoolOp) -> ast.expr:
        kept = [value for position, value in enumerate(old.values) if position != index]
        return kept[0] if len(kept) == 1 else ast.BoolOp(old.op, kept)

    return make


def _constant(value: object) -> Callable[[ast.Constant], ast.Constant]:
    return lambda old: ast.Constant(value)  # type: ignore[arg-type]


def _called(name: str) -> Callable[[ast.Call], ast.Call]:
    return lambda old: ast.Call(ast.Name(name, ast.Load()), old.args, old.keywords)


def _condition_dropped(index: int) -> Callable[[ast.comprehension], ast.comprehension]:
    def make(old: ast.comprehension) -> ast.comprehension:
        del old.ifs[index]
        return old

    return make


def _argument(text: str) -> Callable[[ast.Call], ast.Call]:
    return lambda old: ast.Call(old.func, [ast.Constant(text)], old.keywords)


def _override(name: str | None) -> Callable[[ast.Call], ast.Call]:
    return lambda old: ast.Call(old.func, old.args, [item for item in old.keywords if item.arg != name])


def _negated_test(old: ast.If | ast.IfExp) -> ast.AST:
    old.test = ast.UnaryOp(ast.Not(), old.test)
    return old


def _operator(index: int, op: type[ast.cmpop]) -> Callable[[ast.Compare], ast.Compare]:
    def make(old: ast.Compare) -> ast.Compare:
        old.ops[index] = op()
        return old

    return make


def _operand(position: int, value: object) -> Callable[[ast.Compare], ast.Compare]:
    def make(old: ast.Compare) -> ast.Compare:
        constant = ast.Constant(value)  # type: ignore[arg-type]
        if position:
            old.comparators[position - 1] = constant
        else:
            old.left = constant
        return old

    return make


def _element_dropped(position: int, which: int) -> Callable[[ast.Compare], ast.Compare]:
    def make(old: ast.Compare) -> ast.Compare:
        operand: Any = old.comparators[position - 1] if position else old.left
        del operand.elts[which]
        return old

    return make
