"""Megatron-Bridge's recipes as launches, read from their sources without importing them.

`--dryrun` would write each recipe as a full YAML, but needs torch, GPUs and the models' Hugging Face configs. This
reads what the recipe functions say in literals: assignments `cfg.a.b = value`, keyword arguments of config classes and
the literal defaults of those classes, through calls from recipe to recipe. What it leaves out: everything that comes
from a model's own config (heads, windows, sinks), what a condition decides that cannot be evaluated, loops, and calls
into code outside the recipe folders. All that is unknown, as the key of an override list that is not there.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bridge_sources import DEEPEST, UNKNOWN, Node, Sources, Unknown

from hcp.launch.fact import Fact, Reading, Setting

_SFT = {
    "GPTSFTDatasetConfig",
    "FinetuningDatasetConfig",
    "DirectHFSFTDatasetConfig",
    "EnergonDatasetConfig",
    "MockVLMSFTDatasetConfig",
}
_OPERATORS: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Div: operator.truediv,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


class Recipe(NamedTuple):
    """A recipe's launch; `target` is file:function, `model` the Hugging Face model that it trains ("" = not told)."""

    target: str
    reading: Reading
    model: str


class _Returned(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class _Run:
    """One call of a recipe function."""

    def __init__(self, sources: Sources, module: str, depth: int = 0) -> None:
        self.sources = sources
        self.module = module
        self.depth = depth
        self.names: dict[str, Any] = {}

    def call(self, function: ast.FunctionDef, args: list[Any], kwargs: dict[str, Any]) -> Any:
        parameters = function.args.posonlyargs + function.args.args
        defaults = [UNKNOWN] * (len(parameters) - len(function.args.defaults))
        defaults += [self.value(default) for default in function.args.defaults]
        for parameter, default in zip(parameters, defaults):
            self.names[parameter.arg] = default
        for parameter, value in zip(function.args.kwonlyargs, function.args.kw_defaults):
            self.names[parameter.arg] = UNKNOWN if value is None else self.value(value)
        self.names |= dict(zip([parameter.arg for parameter in parameters], args)) | kwargs
        try:
            self.block(function.body)
        except _Returned as returned:
            return returned.value
        return None

    def block(self, lines: list[ast.stmt]) -> None:
        for line in lines:
            if isinstance(line, ast.Return):
                raise _Returned(self.value(line.value) if line.value else None)
            if isinstance(line, ast.Assign):
                value = self.value(line.value)
                for target in line.targets:
                    self.assign(target, value)
            elif isinstance(line, ast.AnnAssign) and line.value:
                self.assign(line.target, self.value(line.value))
            elif isinstance(line, ast.AugAssign):
                self.assign(line.target, UNKNOWN)
            elif isinstance(line, ast.Expr):
                self.value(line.value)
            elif isinstance(line, ast.If):
                test = self.value(line.test)
                if isinstance(test, Unknown | Node):
                    self.forget(line)
                else:
                    self.block(line.body if test else line.orelse)
            elif isinstance(line, ast.For | ast.While | ast.Try | ast.With):
                self.forget(line)

    def forget(self, block: ast.AST) -> None:
        """What a block that was not followed may have set is unknown."""
        for item in ast.walk(block):
            if isinstance(item, ast.Assign):
                for target in item.targets:
                    self.assign(target, UNKNOWN)

    def assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value)
            if isinstance(owner, Node):
                owner.fields[target.attr] = value
        elif isinstance(target, ast.Tuple):
            for item in target.elts:
                self.assign(item, UNKNOWN)

    def value(self, item: ast.expr) -> Any:
        try:
            return self._value(item)
        except (TypeError, ZeroDivisionError, KeyError, ValueError):
            return UNKNOWN

    def _value(self, item: ast.expr) -> Any:
        if isinstance(item, ast.Constant):
            return item.value
        if isinstance(item, ast.Name):
            return self.names[item.id] if item.id in self.names else self.sources.text(self.module, item.id)
        if isinstance(item, ast.Attribute):
            owner = self.value(item.value)
            if isinstance(owner, Node):
                return owner.fields.setdefault(item.attr, UNKNOWN)
            return UNKNOWN
        if isinstance(item, ast.List | ast.Tuple):
            values = [self.value(element) for element in item.elts]
            return UNKNOWN if any(isinstance(value, Unknown) for value in values) else values
        if isinstance(item, ast.Call):
            return self._call(item)
        operands = {ast.BinOp: ("left", "right"), ast.UnaryOp: ("operand",)}.get(type(item))
        if operands is not None:
            values = [self.value(getattr(item, name)) for name in operands]
            if any(isinstance(value, Unknown | Node) for value in values):
                return UNKNOWN
            if isinstance(item, ast.UnaryOp):
                return not values[0] if isinstance(item.op, ast.Not) else -values[0]
            if isinstance(item, ast.BinOp):
                return _OPERATORS[type(item.op)](*values)
        if isinstance(item, ast.Compare) and len(item.ops) == 1:
            left, right = self.value(item.left), self.value(item.comparators[0])
            if isinstance(left, Node) and right is None:
                return isinstance(item.ops[0], ast.IsNot)
            return (
                UNKNOWN
                if isinstance(left, Unknown) or isinstance(right, Unknown)
                else _OPERATORS[type(item.ops[0])](left, right)
            )
        if isinstance(item, ast.BoolOp):
            values = [self.value(value) for value in item.values]
            decides = isinstance(item.op, ast.Or)
            known = [value for value in values if not isinstance(value, Unknown)]
            if any(bool(value) is decides for value in known):
                return decides
            return UNKNOWN if len(known) < len(values) else not decides
        if isinstance(item, ast.IfExp):
            test = self.value(item.test)
            return UNKNOWN if isinstance(test, Unknown) else self.value(item.body if test else item.orelse)
        return UNKNOWN

    def _call(self, item: ast.Call) -> Any:
        args = [self.value(arg) for arg in item.args]
        kwargs = {word.arg: self.value(word.value) for word in item.keywords if word.arg}
        name = item.func.id if isinstance(item.func, ast.Name) else ""
        function = self.sources.function(self.module, name)
        if function is not None and self.depth < DEEPEST:
            return _Run(self.sources, function.module, self.depth + 1).call(function.code, args, kwargs)
        if name[:1].isupper():
            node = self.sources.new(name)
            node.fields |= kwargs
            return node
        if isinstance(item.func, ast.Attribute):
            if item.func.attr == "from_hf_pretrained" and args and isinstance(args[0], str):
                return Node(model=args[0])
            owner = self.value(item.func.value)
            if isinstance(owner, Node) and owner.model:
                return Node(model=owner.model)
        return Node()  # a model from a Hugging Face config, a path, …: an object of which nothing is known


def recipes(checkout: Path, sources: Sources | None = None) -> Iterator[Recipe]:
    """Every recipe of a Megatron-Bridge checkout that gives a config."""
    sources = sources or Sources(checkout)
    for module, code in sources.recipes():
        config = _Run(sources, module).call(code, [], {})
        if not isinstance(config, Node):
            continue
        settings = tuple(Setting(key, value) for key, value in _flat("", config))
        facts = {}
        dataset, model = config.fields.get("dataset"), config.fields.get("model")
        if isinstance(dataset, Node) and dataset.name:
            facts["finetune"] = Fact(dataset.name in _SFT, "launch")
        target = f"{sources.files[module].relative_to(checkout)}:{code.name}"
        reading = Reading("bridge", target, "overrides", settings, facts, complete=False)
        yield Recipe(target, reading, model.model if isinstance(model, Node) else "")


def recipe_launches(checkout: Path) -> Iterator[tuple[str, Reading]]:
    """(file:function, its launch) for every recipe of a Megatron-Bridge checkout."""
    for recipe in recipes(checkout):
        yield recipe.target, recipe.reading


def _flat(prefix: str, node: Node) -> Iterator[tuple[str, Any]]:
    for name, value in node.fields.items():
        if isinstance(value, Node):
            if value.name:
                yield f"{prefix}{name}._target_", value.name
            yield from _flat(f"{prefix}{name}.", value)
        elif value is None or isinstance(value, bool | int | float | str | list):
            yield prefix + name, value
