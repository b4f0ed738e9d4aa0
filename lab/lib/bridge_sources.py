"""The functions, classes and constants of a Megatron-Bridge checkout, read without importing it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

DEEPEST = 12
"""The maximum number of imports followed from one name to the next."""


class Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = Unknown()


class Node:
    """A config object: the fields that somebody set; any other field is unknown.

    `model` is the Hugging Face model that it was made from; "" = none, or not known.
    """

    def __init__(self, name: str = "", fields: dict[str, Any] | None = None, model: str = "") -> None:
        self.name = name
        self.fields = fields or {}
        self.model = model


class Function(NamedTuple):
    """A function and the module in which its names mean something."""

    module: str
    code: ast.FunctionDef


class Sources:
    """The functions of a Megatron-Bridge checkout by module, and its classes by name."""

    def __init__(self, checkout: Path) -> None:
        self.functions: dict[str, dict[str, ast.FunctionDef]] = {}
        self.imports: dict[str, dict[str, tuple[str, str]]] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.homes: dict[str, list[ast.ClassDef]] = {}
        self.texts: dict[str, dict[str, str]] = {}
        self.files: dict[str, Path] = {}
        for file in sorted((checkout / "src" / "megatron" / "bridge").rglob("*.py")):
            module = ".".join(file.relative_to(checkout / "src").with_suffix("").parts).removesuffix(".__init__")
            self.files[module] = file
            body = ast.parse(file.read_text(encoding="utf-8")).body
            self.functions[module] = {item.name: item for item in body if isinstance(item, ast.FunctionDef)}
            self.imports[module] = {
                name.asname or name.name: (item.module, name.name)
                for item in body
                if isinstance(item, ast.ImportFrom) and item.module and not item.level
                for name in item.names
            }
            self.texts[module] = {
                target.id: item.value.value
                for item in body
                if isinstance(item, ast.Assign) and isinstance(item.value, ast.Constant)
                for target in item.targets
                if isinstance(target, ast.Name) and isinstance(item.value.value, str)
            }
            self.homes[module] = [item for item in body if isinstance(item, ast.ClassDef)]
            for item in self.homes[module]:
                self.classes.setdefault(item.name, item)

    def recipes(self) -> Iterator[Function]:
        for module, functions in self.functions.items():
            if module.split(".")[2:3] in (["recipes"], ["perf_recipes"]):
                for name, code in functions.items():
                    if name.endswith("_config") and not name.startswith(("_", "default_")):
                        yield Function(module, code)

    def function(self, module: str, name: str) -> Function | None:
        """The function that a name means in a module, through imports; None outside the recipe folders."""
        for _ in range(DEEPEST):
            code = self.functions.get(module, {}).get(name)
            if code is not None:
                return Function(module, code) if "recipes" in module else None
            if name not in self.imports.get(module, {}):
                return None
            module, name = self.imports[module][name]
        return None

    def text(self, module: str, name: str) -> Any:
        """The text that a module's constant holds, through imports; else `UNKNOWN`."""
        for _ in range(DEEPEST):
            if name in self.texts.get(module, {}):
                return self.texts[module][name]
            if name not in self.imports.get(module, {}):
                break
            module, name = self.imports[module][name]
        return UNKNOWN

    def new(self, name: str) -> Node:
        """An instance with the literal defaults of its class and of the classes below it, in this checkout."""
        node = Node(name)
        item = self.classes.get(name)
        for base in item.bases if item else ():
            if isinstance(base, ast.Name):
                node.fields |= self.new(base.id).fields
        for line in item.body if item else ():
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                try:
                    node.fields[line.target.id] = ast.literal_eval(line.value) if line.value else UNKNOWN
                except ValueError:
                    node.fields[line.target.id] = UNKNOWN
        return node
