"""The modules of a checkout, parsed when a name in them is first asked for."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

_MOST_STEPS = 20


class Modules:
    """Names of modules below some roots: functions, classes, imports and constants, by their definition."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self._roots = tuple(roots)
        self._names: dict[str, dict[str, list[ast.stmt]]] = {}
        self._stars: dict[str, list[str]] = {}
        self._trees: dict[str, ast.Module] = {}

    @cache  # noqa: B019
    def file(self, module: str) -> Path | None:
        for root in self._roots:
            path = root.joinpath(*module.split("."))
            for file in (path.with_suffix(".py"), path / "__init__.py"):
                if file.is_file():
                    return file
        return None

    def below(self, package: str) -> Iterator[str]:
        """The modules of a package, the package itself first."""
        for root in self._roots:
            folder = root.joinpath(*package.split("."))
            for file in sorted(folder.rglob("*.py")):
                parts = file.relative_to(root).with_suffix("").parts
                yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def packages(self, package: str) -> list[str]:
        """The packages right below one, sorted."""
        folders = [root.joinpath(*package.split(".")) for root in self._roots]
        return sorted({file.parent.name for folder in folders for file in folder.glob("*/__init__.py")})

    def names(self, module: str) -> dict[str, list[ast.stmt]]:
        """Every name that a module defines at its top, with the statements that do."""
        if module not in self._names:
            found: dict[str, list[ast.stmt]] = {}
            self._names[module] = found
            self._stars[module] = []
            self._collect(module, self.tree(module).body, found)
        return self._names[module]

    @cache  # noqa: B019
    def attributes(self, module: str) -> frozenset[str]:
        """Every name that a module has once it is imported, but for its submodules."""
        own = self.names(module)
        return frozenset(own).union(*(self.exported(star) for star in self._stars[module]))

    @cache  # noqa: B019
    def exported(self, module: str) -> frozenset[str]:
        """What `from module import *` brings."""
        for line in self.names(module).get("__all__", ()):
            if isinstance(line, ast.Assign) and isinstance(line.value, ast.List | ast.Tuple):
                return frozenset(str(item.value) for item in line.value.elts if isinstance(item, ast.Constant))
        return frozenset(name for name in self.attributes(module) if not name.startswith("_"))

    def tree(self, module: str) -> ast.Module:
        """The module's code; empty for one that is not below the roots."""
        if module not in self._trees:
            file = self.file(module)
            self._trees[module] = ast.parse(file.read_text(encoding="utf-8") if file else "")
        return self._trees[module]

    def find(self, module: str, name: str) -> tuple[str, list[ast.stmt]] | None:
        """Where a name comes from, through imports; None where that is outside the roots.

        An imported module is found as (its name, []).
        """
        for _ in range(_MOST_STEPS):
            lines = self.names(module).get(name)
            if lines is None:
                if self.file(f"{module}.{name}") is not None:
                    return f"{module}.{name}", []
                exporting = (star for star in reversed(self._stars[module]) if name in self.exported(star))
                return next(filter(None, (self.find(star, name) for star in exporting)), None)
            last = lines[-1]
            if isinstance(last, ast.Import):
                return next((alias.name, []) for alias in last.names if (alias.asname or alias.name) == name)
            if not isinstance(last, ast.ImportFrom):
                return module, lines
            alias = next(alias for alias in last.names if (alias.asname or alias.name) == name)
            above, name = self.source(module, last), alias.name
            if self.file(above) is None:
                return None
            module = above
        return None

    def source(self, module: str, line: ast.ImportFrom) -> str:
        """The module that a `from … import` names, relative ones too."""
        if not line.level:
            return line.module or ""
        file = self.file(module)
        parts = module.split(".")
        up = line.level - (1 if file is not None and file.name == "__init__.py" else 0)
        return ".".join([*parts[: len(parts) - up], *(line.module.split(".") if line.module else ())])

    def _collect(self, module: str, body: list[ast.stmt], found: dict[str, list[ast.stmt]]) -> None:
        for line in body:
            if isinstance(line, ast.FunctionDef | ast.ClassDef):
                found.setdefault(line.name, []).append(line)
            elif isinstance(line, ast.Import | ast.ImportFrom):
                for alias in line.names:
                    if alias.name == "*" and isinstance(line, ast.ImportFrom):
                        self._stars[module].append(self.source(module, line))
                    else:
                        found.setdefault(alias.asname or alias.name, []).append(line)
            elif isinstance(line, ast.Assign):
                for target in line.targets:
                    if isinstance(target, ast.Name):
                        found.setdefault(target.id, []).append(line)
            elif isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                found.setdefault(line.target.id, []).append(line)
            elif isinstance(line, ast.Try):
                self._collect(module, line.body, found)
            elif isinstance(line, ast.If):
                self._collect(module, line.body if "TYPE_CHECKING" in ast.unparse(line.test) else [], found)
