"""The lines of statements: guards with their messages, and what is changed beside names and fields."""

from __future__ import annotations

import ast
from collections.abc import Callable

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.validators.trees import name_of

_LONGEST = 80
CHANGES = frozenset("append extend insert add remove sort reverse discard".split())
"""The methods that change a list or a set."""
_SETS_VARIABLES = ("os.environ.setdefault", "os.environ.pop")
_CONVERTS = ("int", "float", "str", "bool")


def message_of(tree: ast.expr | None) -> str:
    """What upstream says, in one line of at most 80 characters; names stand for values. "" if it says nothing."""
    text = " ".join(_text(tree).split()) if tree is not None else ""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3].rstrip()}..."


def _text(tree: ast.expr) -> str:
    if isinstance(tree, ast.Constant):
        return str(tree.value) if isinstance(tree.value, str) else ""
    if isinstance(tree, ast.JoinedStr):
        return "".join(_text(part) for part in tree.values)
    if isinstance(tree, ast.FormattedValue):
        return ast.unparse(tree.value).rpartition(".")[2].strip("()'\"]")
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Add):
        return _text(tree.left) + _text(tree.right)
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Mod):
        return _text(tree.left)
    if isinstance(tree, ast.Call):
        if isinstance(tree.func, ast.Attribute) and tree.func.attr == "format":
            return _text(tree.func.value)
        return _text(tree.args[0]) if tree.args else ""
    return ""


class GuardText(NamedTuple):
    """A condition in the notation, and in upstream's own words ("" if it has none)."""

    text: str
    own: str = ""

    def line(self, said: ast.expr | None) -> str:
        """What follows `check` or `stop`."""
        name = f"\t{name_of(self.own)}" if self.own not in ("", self.text) else ""
        return f"{self.text}\t{message_of(said)}{name}"


def changed(owner: str, method: str, given: list[str], own: str) -> str | None:
    """What a method of `CHANGES` leaves of `owner` for some arguments, in the notation; None where that can't be said.

    `own` is what `owner` is in the notation.
    """
    text = {
        ("append", 1): "{owner} + list([{0}])",
        ("extend", 1): "{owner} + list({0})",
        ("add", 1): "set(list({owner}) + list([{0}]))",
        ("insert", 2): "{owner}[:{0}] + list([{1}]) + {owner}[{0}:]",
    }.get((method, len(given)))
    return None if text is None else text.format(*given, owner=own)


def set_variable(name: str, value: str) -> str:
    """The statement that gives a variable of the environment a value; None unsets it."""
    return f"do setenv({name}, {value})"


def variable_in(target: ast.expr) -> ast.expr | None:
    """The name of the environment's variable that a target is; None for another target."""
    is_variable = isinstance(target, ast.Subscript) and ast.unparse(target.value) == "os.environ"
    return target.slice if is_variable and isinstance(target, ast.Subscript) else None


def variable_of_call(call: ast.Call, text: Callable[[ast.expr], str]) -> str | None:
    """What `os.environ.setdefault` and `os.environ.pop` come to; None for another call."""
    method = ast.unparse(call.func)
    if method not in _SETS_VARIABLES or len(call.args) != 2:
        return None
    name, value = map(text, call.args)
    return set_variable(name, f"env({name}, {value})" if method == _SETS_VARIABLES[0] else "None")


def fault_check(line: ast.stmt, said: ast.stmt, text: Callable[[ast.expr], str]) -> str:
    """The guard of a statement in a `try` that `said` ends: Python raises nothing in it. The condition is `...` where
    that takes more than the statement's own value."""
    value = line.value if isinstance(line, (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr)) else None
    calls = (ast.unparse(part.func) for part in ast.walk(value) if isinstance(part, ast.Call)) if value else ()
    known = value is not None and all(name in _CONVERTS for name in calls)
    condition = f"works({text(value)})" if known and value is not None else "..."
    return f"check {condition}\t{message_of(said.exc if isinstance(said, ast.Raise) else None)}"
