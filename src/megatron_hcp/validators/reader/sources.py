"""What names mean in upstream's sources: what is asked for is parsed, and nothing imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

_DEEPEST = 8
_DEFINES = re.compile(r"(?:async )?(?:def|class) (\w+)")
_GOES_ON = (" ", "\t", "\n", "\r", "#", ")", "]", "}")
"""How a line begins that belongs to the statement above it."""
Definition = ast.FunctionDef | ast.ClassDef | ast.expr
Imports = dict[str, ast.Import | ast.ImportFrom]
"""By the names that they bind, the imports of a function: the files are read only for those that are asked for."""


class Defined(NamedTuple):
    """What a name means: its file and its definition; `node` None for a module, "" as the path for what is outside.

    `name` is the name where it is defined, or the dotted name of what is outside (`torch.nn.functional`).
    """

    path: str
    name: str
    node: Definition | None = None


class Sources:
    """The files of a checkout by their paths in it; `text_of` gives a file's text, or None if there is none."""

    def __init__(self, text_of: Callable[[str], str | None]) -> None:
        self._text_of = cache(text_of)
        self._trees: dict[str, ast.Module | None] = {}
        self._names: dict[str, dict[str, ast.stmt | ast.expr | str | None]] = {}
        """By file what the names at its top are; a text for a definition that nobody asked for yet."""
        self._rests: dict[str, list[ast.stmt]] = {}

    def tree(self, path: str) -> ast.Module | None:
        if path not in self._trees:
            text = self._text_of(path)
            self._trees[path] = None if text is None else _parsed(text)
        return self._trees[path]

    def module(self, dotted: str) -> str | None:
        """The file of a module."""
        base = dotted.replace(".", "/")
        return next((path for path in (f"{base}.py", f"{base}/__init__.py") if self._text_of(path) is not None), None)

    def find(self, path: str, name: str, depth: int = 0) -> Defined | None:
        """What a name means at the top of a file; None if that cannot be told."""
        top = self._top(path)
        node = top.get(name)
        if isinstance(node, str):
            tree = _parsed(node)
            node = top[name] = None if tree is None else tree.body[0]
        if name not in top and depth < _DEEPEST:
            return self._by_star(path, name, depth)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            return self.imported(path, node, name, depth)
        if isinstance(node, ast.Name) and node.id != name and depth < _DEEPEST:
            return self.find(path, node.id, depth + 1)
        return Defined(path, name, node) if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.expr)) else None

    def _by_star(self, path: str, name: str, depth: int) -> Defined | None:
        """What a name means that a file has from `from MODULE import *`."""
        for line in self._rests.get(path, ()):
            if isinstance(line, ast.ImportFrom) and line.names[0].name == "*":
                file = self.module(_source_of(path, line))
                found = None if file is None else self.find(file, name, depth + 1)
                if found is not None:
                    return found
        return None

    def imported(self, path: str, line: ast.Import | ast.ImportFrom, name: str, depth: int = 0) -> Defined | None:
        """What an import binds a name to."""
        alias = next(one for one in line.names if name in (one.asname, one.name, one.name.partition(".")[0]))
        if isinstance(line, ast.Import):
            dotted = alias.name if alias.asname else alias.name.partition(".")[0]
            return Defined(self.module(dotted) or "", dotted)
        source = _source_of(path, line)
        file = self.module(source)
        inner = self.module(f"{source}.{alias.name}")
        if file is None:
            return Defined(inner or "", f"{source}.{alias.name}")
        if depth < _DEEPEST and (found := self.find(file, alias.name, depth + 1)) is not None:
            return found
        return Defined(inner, f"{source}.{alias.name}") if inner is not None else None

    def _top(self, path: str) -> dict[str, ast.stmt | ast.expr | str | None]:
        """The names at the top of a file; None for one that is bound more than once, by more than an import."""
        if path not in self._names:
            names: dict[str, ast.stmt | ast.expr | str | None] = {}
            self._rests[path], definitions = self._pieces(path)
            for line in self._rests[path]:
                self._bind(names, line, certain=True)
            for name, text in definitions.items():
                is_sure = name not in names or isinstance(names[name], (ast.Import, ast.ImportFrom))
                names[name] = text if is_sure else None
            self._names[path] = names
        return self._names[path]

    def _pieces(self, path: str) -> tuple[list[ast.stmt], dict[str, str]]:
        """The statements at the top of a file, and the texts of definitions that aren't among them."""
        text = self._text_of(path)
        rest, definitions = (text and pieces_of(text)) or ("", {})
        parsed = _parsed(rest) if definitions else self.tree(path)
        return ([], {}) if parsed is None else (parsed.body, definitions)

    def _bind(self, names: dict[str, ast.stmt | ast.expr | str | None], line: ast.stmt, certain: bool) -> None:
        if isinstance(line, (ast.FunctionDef, ast.ClassDef)):
            names[line.name] = line if certain or line.name not in names else None
        elif isinstance(line, (ast.Import, ast.ImportFrom)):
            for alias in line.names:
                names.setdefault(alias.asname or alias.name.partition(".")[0], line)
        elif isinstance(line, (ast.Assign, ast.AnnAssign)) and line.value is not None:
            for target in line.targets if isinstance(line, ast.Assign) else [line.target]:
                if isinstance(target, ast.Name):
                    names[target.id] = line.value if certain and target.id not in names else None
        elif isinstance(line, ast.Try) and (works := self._imports(line.body)) is not None:
            for inner in line.body if works else (part for one in line.handlers for part in one.body):
                self._bind(names, inner, certain)
        elif isinstance(line, (ast.Try, ast.If)):
            for inner in (
                *line.body,
                *line.orelse,
                *(part for one in getattr(line, "handlers", ()) for part in one.body),
            ):
                self._bind(names, inner, certain=False)

    def _imports(self, lines: list[ast.stmt]) -> bool | None:
        """Whether the imports at the head of a `try` find their names in this tree; None if others are asked for, or
        something else may fail."""
        if not lines or not isinstance(lines[0], ast.ImportFrom) or lines[0].level or not lines[0].module:
            return None
        if not all(isinstance(line, ast.Assign) and _is_plain(line.value) for line in lines[1:]):
            return None
        file = self.module(lines[0].module)
        if file is None:
            return None
        return all(alias.name in self._top(file) for alias in lines[0].names)


def pieces_of(text: str) -> tuple[str, dict[str, str]] | None:
    """(all but the definitions at the top of a file, the text of each definition with its decorators, by its name).

    None where a text over several lines may be cut: then the file is parsed whole.
    """
    rest: list[str] = []
    found: dict[str, str] = {}
    piece: list[str] = []
    name = ""
    for line in [*text.splitlines(keepends=True), "end"]:
        if line.startswith(_GOES_ON) or (piece and not name and piece[0][0] == "@"):
            piece.append(line)
            if not name and (defined := _DEFINES.match(line)):
                name = defined[1]
            continue
        whole = "".join(piece)
        if whole.count('"""') % 2 or whole.count("'''") % 2:
            return None
        if name:
            found[name] = whole
        else:
            rest.append(whole)
        defined = _DEFINES.match(line)
        piece, name = [line], defined[1] if defined else ""
    return "".join(rest), found


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _is_plain(tree: ast.expr) -> bool:
    """Whether an expression has names and constants alone."""
    return all(isinstance(part, (ast.Name, ast.Constant, ast.Tuple, ast.expr_context)) for part in ast.walk(tree))


def _source_of(path: str, line: ast.ImportFrom) -> str:
    """The module that a `from` names, seen from a file."""
    source = line.module or ""
    if line.level:
        folder = path.rpartition("/")[0].split("/")
        folder = folder[: len(folder) - line.level + 1]
        source = ".".join([*folder, *([source] if source else [])])
    return source


def is_enum(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).rpartition(".")[2] in ("Enum", "IntEnum", "StrEnum") for base in node.bases)


def member_of(node: ast.ClassDef, name: str) -> str | None:
    """The value of a member of an enum of texts, which equals its value; None for other enums and members."""
    if not any(ast.unparse(base) in ("str", "StrEnum", "enum.StrEnum") for base in node.bases):
        return None
    for line in node.body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name) and line.targets[0].id == name:
            value = line.value.value if isinstance(line.value, ast.Constant) else None
            return value if isinstance(value, str) else None
    return None


def fields_in(node: ast.ClassDef) -> list[ast.AnnAssign]:
    """The fields of a dataclass itself, without its bases'."""
    return [
        line
        for line in node.body
        if isinstance(line, ast.AnnAssign)
        and isinstance(line.target, ast.Name)
        and "ClassVar" not in ast.unparse(line.annotation)
    ]


def default_of(field: ast.AnnAssign) -> ast.expr | None:
    """A dataclass field's default, as an expression; None if it has none."""
    value = field.value
    if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == "field":
        named = {keyword.arg: keyword.value for keyword in value.keywords}
        if "default" in named:
            return named["default"]
        factory = named.get("default_factory")
        if isinstance(factory, ast.Lambda):
            return factory.body
        return None if factory is None else ast.Call(factory, [], [])
    return value
