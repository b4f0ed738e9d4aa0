"""The model's options that a script of miles has a program print, from the model's own file, which is read, never run.

`python3 <miles>/miles/utils/external_utils/model_args_utils.py NAME` prints what `model_args` of
`<miles>/scripts/models/NAME.py` returns: one text, of constants, defaults and variables of the environment.

Source: that file of radixark/miles, 31f1ca961 (2026-08).
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

_MODELS = "scripts/models/{}.py"
_LONGEST, _DEEPEST = 20_000, 40
_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


class _NotAModel(Exception):
    """Something that isn't among what these files are made of."""


def printed_options(name: str, read: Callable[[str], str | None], environ: Callable[[str], str | None]) -> str | None:
    """What the program prints for a model, on one line; None if it can't be determined.

    Args:
        name: of the model's file, without its ending.
        read: the text of a file at a path from miles' root; None if it isn't there.
        environ: the value of a variable of the environment; None if it isn't set. It raises KeyError for one that isn't
            known.
    """
    try:
        return " ".join(str(_ModelFile(name, read, environ, 0).call({})).split())
    except (_NotAModel, SyntaxError, ValueError, TypeError, KeyError, ArithmeticError, RecursionError, MemoryError):
        return None


class _ModelFile:
    """A model's file: what its names are, and its function `model_args`."""

    def __init__(
        self, name: str, read: Callable[[str], str | None], environ: Callable[[str], str | None], depth: int
    ) -> None:
        self.read, self.environ, self.depth = read, environ, depth + 1
        text = read(_MODELS.format(name)) if depth < 4 else None
        if text is None or len(text) > _LONGEST:
            raise _NotAModel
        self.names: dict[str, Any] = {}
        self.function: ast.FunctionDef | None = None
        for line in ast.parse(text).body:
            if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
                self.names[line.targets[0].id] = self.value(line.value)
            elif isinstance(line, ast.FunctionDef) and line.name == "model_args":
                self.function = line

    def call(self, given: Mapping[str, Any]) -> Any:
        """What `model_args` returns for arguments given by name."""
        function = self.function
        if function is None:
            raise _NotAModel
        arguments = [*function.args.args, *function.args.kwonlyargs]
        defaults = [*function.args.defaults, *function.args.kw_defaults]
        named = [argument.arg for argument in arguments]
        values = [None if default is None else self.value(default) for default in defaults]
        if len(named) != len(values) or not given.keys() <= {*named}:
            raise _NotAModel
        self.names |= {**dict(zip(named, values)), **given}
        for line in function.body:
            if isinstance(line, ast.Return) and line.value is not None:
                return self.value(line.value)
            if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
                self.names[line.targets[0].id] = self.value(line.value)
            elif not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)):  # a docstring
                raise _NotAModel
        raise _NotAModel

    def value(self, tree: ast.expr, depth: int = 0) -> Any:
        if depth > _DEEPEST:
            raise _NotAModel

        def inner(part: ast.expr) -> Any:
            return self.value(part, depth + 1)

        if isinstance(tree, ast.Constant):
            return tree.value
        if isinstance(tree, ast.Name):
            return self.names[tree.id]
        if isinstance(tree, ast.JoinedStr):
            return "".join(str(inner(part)) for part in tree.values)
        if isinstance(tree, ast.FormattedValue) and tree.conversion == -1 and tree.format_spec is None:
            return inner(tree.value)
        if isinstance(tree, ast.BinOp):
            left, right = inner(tree.left), inner(tree.right)
            if isinstance(tree.op, ast.Mult) and not (
                isinstance(left, (int, float)) and isinstance(right, (int, float))
            ):
                raise _NotAModel  # a text many times over
            return _OPERATORS[type(tree.op)](left, right)
        if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.Or):
            return next(filter(None, map(inner, tree.values[:-1])), None) or inner(tree.values[-1])
        if isinstance(tree, ast.Compare) and len(tree.ops) == 1:
            return _OPERATORS[type(tree.ops[0])](inner(tree.left), inner(tree.comparators[0]))
        if isinstance(tree, ast.IfExp):
            return inner(tree.body if inner(tree.test) else tree.orelse)
        if isinstance(tree, ast.Call):
            return self._called(tree, inner)
        raise _NotAModel

    def _called(self, tree: ast.Call, inner: Callable[[ast.expr], Any]) -> Any:
        name = ast.unparse(tree.func)
        named = {one.arg: inner(one.value) for one in tree.keywords if one.arg is not None}
        if name in ("os.environ.get", "os.getenv"):
            found = self.environ(str(inner(tree.args[0])))
            return (inner(tree.args[1]) if len(tree.args) > 1 else None) if found is None else found
        if name == "int" and not named:
            return int(inner(tree.args[0]))
        if name == "moe_layer_freq":
            count, dense = int(named["nlayers"]), int(named["first_k_dense_replace"])
            return f"[{','.join('0' if layer < dense else '1' for layer in range(min(count, _LONGEST)))}]"
        if name == "load_sibling_model_args":
            return _ModelFile(str(inner(tree.args[1])), self.read, self.environ, self.depth).call(named)
        raise _NotAModel
