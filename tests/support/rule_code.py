"""What a rule is made of: its function, its `applies`, and the functions and tables of rules that these use."""

from __future__ import annotations

import ast
import dataclasses
import importlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from megatron_hcp.rules.rule import Rule
from support.rules import family_of

FRAMEWORK = ("registry", "rule", "upstream", "view")
"""Modules of megatron_hcp.rules that serve all rules alike, and are no family."""

Place = tuple[tuple[str, int | None], ...]
"""The way from a module's tree to a node in it: fields, and positions where a field is a list."""


@dataclasses.dataclass(frozen=True)
class Part:
    """A function, lambda or table, and the rules that use it."""

    module: str
    name: str
    line: int
    path: Place
    owners: tuple[str, ...]
    is_table: bool

    @property
    def family(self) -> str:
        """The family whose tests must notice: that of the folder, if one of its rules uses this, else the first."""
        families = [family_of(owner) for owner in self.owners]
        here = self.module.split(".")[2]
        return here if here in families else families[0]


@cache
def tree_of(module: str) -> ast.Module:
    """A module's syntax tree; nobody may change it."""
    return ast.parse(Path(str(importlib.import_module(module).__file__)).read_text(encoding="utf-8"))


def parts_of(rules: Iterable[Rule]) -> list[Part]:
    """Every part of every rule that is a function, with all rules that use it; rows of tables are data."""
    found: dict[tuple[str, int, bool], tuple[tuple[str, Place], set[str]]] = {}
    for rule in rules:
        if rule.table:
            continue
        for key, place in _reached(rule):
            found.setdefault(key, (place, set()))[1].add(rule.id)
    return [
        Part(module, name, line, path, tuple(sorted(owners)), is_table)
        for (module, line, is_table), ((name, path), owners) in sorted(found.items())
    ]


def _reached(rule: Rule) -> Iterator[tuple[tuple[str, int, bool], tuple[str, Place]]]:
    """The rule's function, its `applies`, and what these use, followed through all modules of rules."""
    module = rule.check.__module__
    found = _definition(module, rule.check.__name__)
    index, function = found or (0, None)
    assert isinstance(function, ast.FunctionDef), f"{rule.id} is no function of {module}"
    waiting: list[tuple[str, ast.AST, str, Place]] = [(module, function, function.name, (("body", index),))]
    call = next(item for item in function.decorator_list if isinstance(item, ast.Call))
    which, applies = next((n, item.value) for n, item in enumerate(call.keywords) if item.arg == "applies")
    decorator = function.decorator_list.index(call)
    way: Place = (("body", index), ("decorator_list", decorator), ("keywords", which), ("value", None))
    waiting.append((module, applies, f"{function.name}: applies", way))
    seen = set()
    while waiting:
        module, node, name, path = waiting.pop()
        is_table = isinstance(node, ast.Assign | ast.AnnAssign)
        key = (module, getattr(node, "lineno", 0), is_table)
        if key in seen:
            continue
        seen.add(key)
        yield key, (name, path)
        namespace = vars(importlib.import_module(module))
        for used in _names(node):
            owner = _owner(namespace, used)
            if owner is None:
                continue
            home, original = owner
            where = _definition(home, original)
            if where is not None:
                waiting.append((home, where[1], original, (("body", where[0]),)))


def _names(node: ast.AST) -> set[str]:
    """The names that a function's body, a lambda or a table reads."""
    parts = node.body if isinstance(node, ast.FunctionDef) else [node]
    return {
        item.id
        for part in parts
        for item in ast.walk(part)
        if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load)
    }


def _owner(namespace: dict[str, Any], name: str) -> tuple[str, str] | None:
    """The module of rules that defines a name, and its name there."""
    here = namespace["__name__"]
    if name not in namespace:
        return None
    for node in tree_of(here).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    home = str(node.module)
                    served = home.startswith("megatron_hcp.rules.") and home.split(".")[2] not in FRAMEWORK
                    return (home, alias.name) if served else None
    return here, name


def _definition(module: str, name: str) -> tuple[int, ast.AST] | None:
    for index, node in enumerate(tree_of(module).body):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return index, node
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return index, node
    return None


def node_at(module: str, path: Place) -> ast.AST:
    """The node of a part in its module's tree."""
    node: Any = tree_of(module)
    for field, index in path:
        node = getattr(node, field) if index is None else getattr(node, field)[index]
    return node
