"""Questions about pieces of upstream's syntax trees."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from copy import copy
from functools import lru_cache

from megatron_hcp.validators.program import REQUIRED

_INVERSE = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


def copied_fields(line: ast.For) -> ast.expr | None:
    """A loop that copies the fields of a dataclass from a namespace into a dict, as one call of `copy_fields`."""
    text = ast.unparse(line)
    found = re.fullmatch(
        r"for (\w+) in dataclasses\.fields\((\w+)\):\s+if hasattr\((\w+), \1\.name\):\s+"
        r"(\w+)\[\1\.name\] = getattr\(\3, \1\.name\)",
        text,
    )
    return ast.parse(f"copy_fields({found[2]}, {found[3]}, {found[4]})", mode="eval").body if found else None


def alternatives(kinds: ast.expr) -> ast.expr:
    """`list | tuple` as a tuple."""
    if isinstance(kinds, ast.BinOp) and isinstance(kinds.op, ast.BitOr):
        left = alternatives(kinds.left)
        return ast.Tuple([*(left.elts if isinstance(left, ast.Tuple) else [left]), kinds.right], ast.Load())
    return kinds


def lambda_of(names: str, body: ast.expr) -> ast.expr:
    return ast.parse(f"lambda {names}: {ast.unparse(body)}", mode="eval").body


def negated(test: ast.expr) -> ast.expr:
    """The condition that keeps upstream out of a branch, as a person would write it."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return ast.Compare(test.left, [_INVERSE[type(test.ops[0])]()], test.comparators)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return ast.BoolOp(ast.And(), [negated(part) for part in test.values])
    return ast.UnaryOp(ast.Not(), test)


def targets(line: ast.AST) -> Iterator[ast.expr]:
    if isinstance(line, ast.Assign):
        yield from line.targets
    elif isinstance(line, (ast.AugAssign, ast.AnnAssign, ast.For)):
        yield line.target


@lru_cache(maxsize=512)
def nodes_in(node: ast.AST) -> tuple[ast.AST, ...]:
    """A tree's nodes in the order of `ast.walk`, in half its time: a function is looked through for several things."""
    found = [node]
    for one in found:  # which grows
        for field in one._fields:
            part = getattr(one, field, None)
            if isinstance(part, ast.AST):
                found.append(part)
            elif isinstance(part, list):
                found += [item for item in part if isinstance(item, ast.AST)]
    return tuple(found)


@lru_cache(maxsize=512)
def methods_of(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    """The functions of a class by name; the first of several."""
    return {line.name: line for line in reversed(node.body) if isinstance(line, ast.FunctionDef)}


def local_names(node: ast.AST) -> set[str]:
    """The names that are local to a function (or a class's methods), those of its comprehensions and lambdas too."""
    names: set[str] = set()
    for one in nodes_in(node):
        if isinstance(one, ast.arg):
            names.add(one.arg)
        elif isinstance(one, ast.Name) and isinstance(one.ctx, (ast.Store, ast.Del)):
            names.add(one.id)
        elif isinstance(one, ast.FunctionDef) and one is not node:
            names.add(one.name)
    return names


_WORDS = frozenset(("check", "stop", "do", "forget"))
"""Words of the program's own that Python has as names."""


def with_free_names(node: ast.FunctionDef) -> ast.FunctionDef:
    """The function with `stop_` for a name of its own that means a statement in the program."""
    taken = [one for one in nodes_in(node) if isinstance(one, ast.Name) and one.id in _WORDS]
    for one in taken if any(isinstance(one.ctx, ast.Store) for one in taken) else ():
        one.id += "_"
    return node


def inner_functions(node: ast.AST) -> Iterator[tuple[ast.FunctionDef, tuple[str, ...]]]:
    """The functions in a function's body that have guards, and the parameters of the outer one that each reads: they
    become its own first ones.

    Left out are those that read other names of it, or that are passed on, not just called.
    """
    body = node.body if isinstance(node, ast.FunctionDef) else []
    functions = [line for line in body if isinstance(line, ast.FunctionDef)]
    for function in functions:
        own = local_names(function)
        others = local_names(node) - own | {one.name for one in functions}
        reads = {one.id for one in nodes_in(function) if isinstance(one, ast.Name)}
        has_guards = any(isinstance(one, (ast.Assert, ast.Raise)) for one in nodes_in(function))
        if has_guards and not function.decorator_list and _are_given(node, function.name, captured := reads & others):
            names = tuple(sorted(captured))
            yield _with_parameters(function, names), names


def _are_given(node: ast.AST, inner: str, captured: set[str]) -> bool:
    """Whether what an inner function reads can be given to it at each call."""
    if not captured or not isinstance(node, ast.FunctionDef):
        return not captured
    called = [one.func for one in nodes_in(node) if isinstance(one, ast.Call)]
    uses = [one for one in nodes_in(node) if isinstance(one, ast.Name) and one.id == inner]
    return captured <= {one.arg for one in node.args.args} and all(one in called for one in uses)


def _with_parameters(function: ast.FunctionDef, names: Iterable[str]) -> ast.FunctionDef:
    given = copy(function)
    given.args = copy(function.args)
    given.args.posonlyargs = [*map(ast.arg, names), *function.args.posonlyargs]
    return given


def blocks_of(node: ast.FunctionDef) -> Iterator[list[ast.stmt]]:
    """The lists of statements in a function, its own first."""
    for one in nodes_in(node):
        for name in ("body", "orelse"):
            block = getattr(one, name, None)
            if isinstance(block, list) and block:
                yield block


def makes(line: ast.stmt, name: str) -> bool:
    """Whether a statement assigns a name a call with keywords from a dict, as in `config = Config(**kwargs)`."""
    return (
        isinstance(line, ast.Assign)
        and ast.unparse(line.targets[0]) == name
        and isinstance(line.value, ast.Call)
        and any(keyword.arg is None for keyword in line.value.keywords)
    )


def begins(line: ast.stmt) -> bool:
    """Whether a statement makes an empty dict."""
    return isinstance(line, ast.Assign) and isinstance(line.value, ast.Dict) and not line.value.keys


def names_a_field(line: ast.stmt, owners: Collection[str]) -> bool:
    """Whether a statement gives a field of one of some objects a name: `train_config = cfg.train`."""
    return (
        isinstance(line, ast.Assign)
        and isinstance(line.targets[0], ast.Name)
        and isinstance(line.value, ast.Attribute)
        and ast.unparse(line.value.value) in owners
    )


def _names_of_bases(node: ast.ClassDef) -> list[str]:
    return [ast.unparse(base).rpartition(".")[2] for base in node.bases]


def without_fields(node: ast.ClassDef) -> int:
    """How many of a class's bases come from libraries and give it no fields."""
    return sum(name in ("ABC", "object", "Protocol", "BaseModel", "Mapping") for name in _names_of_bases(node))


def missing_in(node: ast.ClassDef, field: ast.AnnAssign) -> str:
    """What stands for a field's default that there is not, or that is not read."""
    return REQUIRED if field.value is None and "BaseModel" in _names_of_bases(node) else "..."


def guards_in(body: list[ast.stmt]) -> list[ast.stmt]:
    """The guards in a block, and the blocks in it that have some."""
    found: list[ast.stmt] = []
    for line in body:
        if isinstance(line, (ast.Assert, ast.Raise)):
            found.append(line)
        elif isinstance(line, ast.If) and any(isinstance(one, (ast.Assert, ast.Raise)) for one in nodes_in(line)):
            found.append(ast.If(line.test, guards_in(line.body), guards_in(line.orelse)))
        elif any(isinstance(one, (ast.Assert, ast.Raise)) for one in nodes_in(line)):
            found.append(line)
    return found


def opened_files(line: ast.With) -> dict[str, ast.expr]:
    """By its name, the path of each file that a `with` opens to be read."""
    return {
        ast.unparse(item.optional_vars): item.context_expr.args[0]
        for item in line.items
        if item.optional_vars is not None
        and isinstance(item.context_expr, ast.Call)
        and ast.unparse(item.context_expr.func) == "open"
        and len(item.context_expr.args) == 1
    }


def with_arguments(node: ast.FunctionDef) -> ast.FunctionDef:
    """A function that takes Megatron-LM's arguments from the global place as one that is given them, last."""
    taken = next((line for line in node.body if ast.unparse(line) == "args = get_args()"), None)
    if taken is None:
        return node
    made = copy(node)
    made.body = [line for line in node.body if line is not taken]
    made.args = copy(node.args)
    made.args.kwonlyargs = [*node.args.kwonlyargs, ast.arg("args")]
    made.args.kw_defaults = [*node.args.kw_defaults, None]
    return made


def chosen(line: ast.Match) -> list[ast.stmt]:
    """A `match` of plain values as conditions; one with other patterns in it forgets what its cases assign."""
    rest: list[ast.stmt] = []
    for case in reversed(line.cases):
        pattern = case.pattern
        if isinstance(pattern, ast.MatchValue) and case.guard is None:
            rest = [ast.If(ast.Compare(line.subject, [ast.Eq()], [pattern.value]), case.body, rest)]
        elif ast.unparse(pattern) == "_" and case.guard is None:
            rest = case.body
        else:
            rest = [ast.If(unread(), case.body, rest)]
    return rest


def parameters_of(node: ast.FunctionDef) -> list[tuple[str, ast.expr | None]]:
    """A function's parameters with their defaults; None for one that must be given."""
    given = [*node.args.posonlyargs, *node.args.args]
    defaults: list[ast.expr | None] = [None] * (len(given) - len(node.args.defaults)) + list(node.args.defaults)
    pairs = [*zip(given, defaults), *zip(node.args.kwonlyargs, node.args.kw_defaults)]
    return [(one.arg, default) for one, default in pairs]


def imports_in(node: ast.AST) -> dict[str, ast.Import | ast.ImportFrom]:
    """The imports in a function, by the names that they bind."""
    return {
        alias.asname or alias.name.partition(".")[0]: line
        for line in nodes_in(node)
        if isinstance(line, (ast.Import, ast.ImportFrom))
        for alias in line.names
    }


def packages_in(lines: list[ast.stmt]) -> list[str]:
    """What the imports among statements take names from."""
    found = [alias.name for one in lines if isinstance(one, ast.Import) for alias in one.names]
    return found + [one.module or "" for one in lines if isinstance(one, ast.ImportFrom)]


def unread() -> ast.expr:
    """What stands for an expression that cannot be read."""
    return ast.Constant(...)


def is_unread(tree: ast.expr) -> bool:
    return isinstance(tree, ast.Constant) and tree.value is ...
