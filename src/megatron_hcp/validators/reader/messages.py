"""The message of an assert or raise, as short as citations are."""

from __future__ import annotations

import ast

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.validators.guards import name_of

_LONGEST = 80


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
