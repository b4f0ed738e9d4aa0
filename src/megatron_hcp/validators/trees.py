"""The trees of expressions, by Python's parser; nothing is compiled to code."""

from __future__ import annotations

import _ast
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

_MODULES = ("os.", "sys.", "torch.")
_ONLY_TREE = 0x400
"""`ast.PyCF_ONLY_AST`: importing ast takes longer than reading a launch's guards."""


@lru_cache(maxsize=10_000)
def tree_of(text: str) -> Any:
    """The tree of an expression's text."""
    return compile(text, "<guard>", "eval", _ONLY_TREE, True).body


def dotted(tree: Any) -> str | None:
    """The text of a name or of fields of one, `a.b.c`; None for other expressions."""
    if isinstance(tree, _ast.Name):
        return str(tree.id)
    owner = dotted(tree.value) if isinstance(tree, _ast.Attribute) else None
    return None if owner is None else f"{owner}.{tree.attr}"


def path_of(tree: Any) -> str | None:
    """`dotted`, with items of dicts as fields: `config.a.b` for `config['a'].get('b')`, or for what is popped."""
    owner, key = None, None
    if isinstance(tree, _ast.Subscript):
        owner, key = tree.value, tree.slice
    elif isinstance(tree, _ast.Call) and isinstance(tree.func, _ast.Attribute) and tree.func.attr in ("get", "pop"):
        owner, key = tree.func.value, tree.args[0] if tree.args else None
    elif isinstance(tree, _ast.Attribute):
        owner, key = tree.value, _ast.Constant(tree.attr)
    if owner is None or not isinstance(key, _ast.Constant) or not isinstance(key.value, str):
        return dotted(tree)
    before = path_of(owner)
    return None if before is None else f"{before}.{key.value}"


def names_in(tree: Any, named: Callable[[Any], str | None] = dotted) -> list[tuple[str, Any]]:
    """The names and fields that an expression reads, `args.x` as one, each with its tree; `getattr(args, 'x')` too.

    `named` gives the name of what is one: `path_of` takes a dict's items for fields.
    """
    name = named(tree)
    if name is not None:
        return [(name, tree)]
    if isinstance(tree, _ast.Call) and isinstance(tree.func, _ast.Name):
        if (
            tree.func.id == "getattr"
            and len(tree.args) > 1
            and isinstance(tree.args[0], _ast.Name)
            and isinstance(tree.args[1], _ast.Constant)
        ):
            return [(f"{tree.args[0].id}.{tree.args[1].value!s}", tree)]
        given = [*tree.args, *(one.value for one in tree.keywords)]
        return [found for part in given for found in names_in(part, named)]
    found: list[tuple[str, Any]] = []
    for field in tree._fields:
        part = getattr(tree, field, None)
        for item in part if isinstance(part, list) else [part]:
            if isinstance(item, _ast.AST):
                found += names_in(item, named)
    return found


def variable_fields(tree: Any) -> Iterator[tuple[str, str, Any]]:
    """(owner, variable, tree) of each `getattr(owner, variable)`: which field it reads, only the variable says."""
    if isinstance(tree, _ast.Call) and getattr(tree.func, "id", None) == "getattr":
        owner, field = tree.args[0], tree.args[1]
        if isinstance(owner, _ast.Name) and isinstance(field, _ast.Name):
            yield str(owner.id), str(field.id), tree
    for field in tree._fields:
        part = getattr(tree, field, None)
        for item in part if isinstance(part, list) else [part]:
            if isinstance(item, _ast.AST):
                yield from variable_fields(item)


def name_of(condition: str) -> str:
    """A condition's stable name: the settings that it reads, and a digest of its text.

    It is made from upstream's own text, so that it lasts when the notation of conditions changes.

    >>> name_of("args.tp % args.cp == 0")
    'tp-cp-906b'
    """
    import re  # few launches have a guard to name
    from zlib import crc32

    read = (name for name, _ in names_in(tree_of(condition)) if not name.startswith(_MODULES))
    names = dict.fromkeys(name.partition(".")[2] or name for name in read)
    words = "-".join(names or re.findall(r"['\"]([A-Z][A-Z0-9_]{3,})['\"]", condition))[:60].rstrip("-") or "always"
    return f"{words}-{crc32(condition.encode()) & 0xFFFF:04x}"
