"""Every door of the tree: where a name is joined to a folder, where a file is opened, where a program is started.

Each is found in the code. It is the one function that bounds it (`ground/below.py`, the readers of `ground/`,
`ground/child.py`), or it stands in doors.txt with the reason why it need not pass there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from support.tree import tree_of

pytestmark = pytest.mark.xdist_group("tree")  # what is parsed once serves all of them

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src" / "megatron_hcp"
JOINS = {"os.path.join", "posixpath.join", "path.join", "join"}
READS = {"open", "read_text", "read_bytes", "write_text", "write_bytes"}
STARTS = {
    "Popen",
    "run",
    "call",
    "check_call",
    "check_output",
    "system",
    "popen",
    "fork",
    "posix_spawn",
    "execve",
    "execv",
}
NAMES = {"Path", "join", "joinpath", *READS, *STARTS}
NUMBERS = {"len", "sum", "min", "max", "float"}
Door = tuple[str, str]
"""Kind, and `module::function`."""


KINDS = (ast.ImportFrom, ast.FunctionDef, ast.AnnAssign, ast.BinOp, ast.Call)
Nodes = list[tuple[str, ast.AST]]
"""The nodes of a module that tell of doors, each with its function: a tree is walked once, for that takes seconds."""


def doors_in(name: str, nodes: Nodes, returns_path: set[str], fields: set[str]) -> Iterator[Door]:
    """The doors of a module; a slash joins paths where the module has the means to hold a path."""
    imported = {alias.name for _, node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    own = {node.name for _, node in nodes if isinstance(node, ast.FunctionDef) and _says_path(node.returns)}
    holds = bool((imported | own) & returns_path)
    for function, node in nodes:
        place = f"{name}::{function}"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            is_field = isinstance(node.left, ast.Attribute) and node.left.attr in fields
            if (holds or is_field) and not _is_fixed(node.right) and not _is_number(node.right):
                yield "join", place
        elif isinstance(node, ast.Call) and _name_of(node.func) in NAMES:
            called = ast.unparse(node.func)
            owner, _, last = called.rpartition(".")
            fixed = all(map(_is_fixed, node.args[1:]))
            is_join = called in JOINS or (called == "Path" and len(node.args) > 1)
            if (is_join and not fixed) or (last == "joinpath" and not all(map(_is_fixed, node.args))):
                yield "join", place
            elif last in READS and (owner or last == "open") and owner not in ("self", "reader"):
                if not _is_package_data(node):
                    yield "open", place
            elif last in STARTS and owner in ("subprocess", "os"):
                yield "start", place


def _with_functions(tree: ast.Module) -> Nodes:
    found: Nodes = []
    left: Nodes = [("", tree)]
    while left:
        function, node = left.pop()
        for child in ast.iter_child_nodes(node):
            is_scope = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            inner = f"{function}.{child.name}".lstrip(".") if is_scope else function  # type: ignore[attr-defined]
            left.append((inner, child))
            if isinstance(child, KINDS):
                found.append((inner, child))
    return found


def _name_of(function: ast.expr) -> str:
    """The last word of what is called: writing all calls out as text takes seconds."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _says_path(annotation: ast.expr | None) -> bool:
    return annotation is not None and "Path" in ast.unparse(annotation)


def _is_fixed(node: ast.expr) -> bool:
    """A constant, or a name for one."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return isinstance(node, ast.Constant) or name.isupper()


def _is_number(node: ast.expr) -> bool:
    is_power = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)
    return is_power or (isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in NUMBERS)


def _is_package_data(call: ast.Call) -> bool:
    """A file beside the module, by a fixed name."""
    first = ast.unparse(call.args[0]) if call.args else ""
    return first.strip("_").isupper() or first.startswith("os.path.join(os.path.dirname(__file__), '")


@cache
def found() -> frozenset[Door]:
    modules = {path.relative_to(SOURCE).as_posix(): _with_functions(tree_of(path)) for path in SOURCE.rglob("*.py")}
    nodes = [node for module in modules.values() for _, node in module]
    returns = {node.name for node in nodes if isinstance(node, ast.FunctionDef) and _says_path(node.returns)} | {"Path"}
    fields = {
        node.target.id
        for node in nodes
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and _says_path(node.annotation)
    }
    return frozenset(door for name, module in modules.items() for door in doors_in(name, module, returns, fields))


def listed() -> dict[Door, str]:
    lines = (HERE / "doors.txt").read_text("utf-8").splitlines()
    rows = [line.split(maxsplit=2) for line in lines if not line.startswith("#")]
    return {(kind, place): reason for kind, place, reason in rows}


def _row_of(door: Door, rows: dict[Door, str]) -> Door | None:
    folder = (door[0], f"{door[1].partition('/')[0]}/*")
    return door if door in rows else folder if folder in rows else None


def test_every_door_is_bounded_or_has_a_reason() -> None:
    rows = listed()
    new = sorted(door for door in found() if _row_of(door, rows) is None)
    assert not new, f"let them pass file_below, ground's readers or run_child, or say why not in doors.txt: {new}"


def test_every_line_of_the_list_is_still_needed() -> None:
    rows = listed()
    assert rows.keys() <= {_row_of(door, rows) for door in found()}
    assert all(reason.strip() for reason in rows.values())


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("from pathlib import Path\ndef f(folder: Path, name):\n    return folder / name", "join"),
        ("def f(card, name):\n    return card.folder / f'{name}.md'", "join"),
        ("import os\ndef f(a, b):\n    return os.path.join(a, b)", "join"),
        ("def f(folder, parts):\n    return folder.joinpath(*parts)", "join"),
        ("from pathlib import Path\ndef f(a, b):\n    return Path(a, b)", "join"),
        ("def f(name):\n    return open(name).read()", "open"),
        ("def f(path):\n    return path.read_text()", "open"),
        ("import subprocess\ndef f(words):\n    subprocess.run(words)", "start"),
        ("import os\ndef f(words):\n    os.system(words)", "start"),
    ],
)
def test_a_new_door_would_be_found(text: str, kind: str) -> None:
    assert list(doors_in("m.py", _with_functions(ast.parse(text)), {"Path"}, {"folder"})) == [(kind, "m.py::f")]


@pytest.mark.parametrize(
    "text",
    ["a = b / c", "from pathlib import Path\nx = a / len(b)", "import os\nx = os.path.join(a, 'config.json')",
     "from pathlib import Path\nx = folder / 'SKILL.md'", "open(_FILE)", "self.open(x)"],
)  # fmt: skip
def test_numbers_and_fixed_names_are_no_door(text: str) -> None:
    assert not list(doors_in("m.py", _with_functions(ast.parse(text)), {"Path"}, {"folder"}))
