"""What miles' `model_args_utils.py NAME` prints: the options of a model, which a function of scripts/models/NAME.py
puts together. It is read as data: nothing is run.

Source: miles/utils/external_utils/model_args_utils.py of miles 0.1.0.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from megatron_hcp.bash.paths import seen_from_folder
from megatron_hcp.bash.syntax import Script
from megatron_hcp.bash.value import Field, Items, Lit, Value, text_of
from megatron_hcp.bash.walker import Prefix, Walker

_MOST_CALLS = 4
_MOST, _LONGEST = 10**9, 20_000
_DECIDE_NOTHING = (ast.Return, ast.ImportFrom, ast.Import, ast.FunctionDef, ast.Expr)
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {ast.Add: operator.add, ast.Mult: operator.mul}


class _NotShown(LookupError):
    """A value that the source doesn't show."""


def model_args(w: Walker, items: Items, prefix: Prefix) -> Value | None:
    """The options that `python3 …/model_args_utils.py NAME` prints; None if its files aren't here."""
    words = [item for item in items if isinstance(item, Field)]
    if len(words) != len(items) or len(words) != 3:
        return None

    def variable(name: str) -> str | None:
        value = prefix[name][0] if name in prefix else w.environment()[name].value if name in w.environment() else ()
        text = text_of(value or ())
        if text is None:
            raise _NotShown
        return text or None

    def find(model: str) -> Script | str:
        above = Lit(f"/../../../../scripts/models/{model}.py", words[1].span, False)
        return w.find_script(seen_from_folder(w, (*words[1].parts, above)), ())

    try:
        return (Lit(_Models(find, variable).printed(words[2].text or "", {}), words[1].span, False),)
    except (LookupError, SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError):
        return None


class _Models:
    """The models' files: `find` returns the file of a model, `variable` the value of an environment variable."""

    def __init__(self, find: Callable[[str], Script | str], variable: Callable[[str], str | None]) -> None:
        self.find, self.variable = find, variable
        self.calls = 0

    def printed(self, model: str, given: Mapping[str, Any]) -> str:
        """What the function of a model's file returns for the arguments `given`."""
        script = self.find(model)
        self.calls += 1
        if isinstance(script, str) or self.calls > _MOST_CALLS:
            raise _NotShown
        tree = ast.parse(script.text.data)
        made = next(
            (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "model_args"), None
        )
        if made is None:
            raise _NotShown
        names: dict[str, Any] = {"__file__": None}
        self._assign(tree.body, names)
        taken = reversed(made.args.args)
        names |= {one.arg: self._value(value, names) for one, value in zip(taken, reversed(made.args.defaults))}
        names |= given
        self._assign(made.body, names)
        last = made.body[-1]
        if not isinstance(last, ast.Return) or last.value is None:
            raise _NotShown
        if isinstance(last.value, ast.Call) and getattr(last.value.func, "id", "") == "load_sibling_model_args":
            return self.printed(self._value(last.value.args[1], names), self._arguments(last.value, names))
        return str(self._value(last.value, names))

    def _assign(self, body: list[ast.stmt], names: dict[str, Any]) -> None:
        for node in body:
            if (
                isinstance(node, ast.Assign)
                and isinstance(target := node.targets[-1], ast.Name)
                and not node.targets[1:]
            ):
                names[target.id] = self._value(node.value, names)
            elif not isinstance(node, _DECIDE_NOTHING):
                raise _NotShown

    def _arguments(self, call: ast.Call, names: Mapping[str, Any]) -> dict[str, Any]:
        return {one.arg or "": self._value(one.value, names) for one in call.keywords}

    def _value(self, node: ast.expr, names: Mapping[str, Any]) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.JoinedStr):
            text = ""
            for one in node.values:
                text += str(self._value(one, names))
                if len(text) > _LONGEST:
                    raise _NotShown
            return text
        if isinstance(node, ast.Name) and node.id in names:
            return names[node.id]
        if isinstance(node, ast.FormattedValue) and node.format_spec is None and node.conversion == -1:
            return self._value(node.value, names)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            found = _OPERATORS[type(node.op)](
                *map(int, (self._value(node.left, names), self._value(node.right, names)))
            )
            if abs(found) < _MOST:
                return found
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            *others, last = node.values
            return next(filter(None, (self._value(one, names) for one in others)), None) or self._value(last, names)
        if isinstance(node, ast.IfExp) and (test := ast.unparse(node.test)).endswith(" is not None"):
            return self._value(node.orelse if names[test[:-12]] is None else node.body, names)
        if isinstance(node, ast.Call):
            return self._called(ast.unparse(node.func), node, names)
        raise _NotShown

    def _called(self, name: str, node: ast.Call, names: Mapping[str, Any]) -> Any:
        words = [self._value(one, names) for one in node.args]
        if name == "os.environ.get" and len(words) == 1:
            return self.variable(words[0])
        if name == "int" and len(words) == 1:
            return int(words[0])
        if name == "moe_layer_freq":
            layers, dense = map(self._arguments(node, names).get, ("nlayers", "first_k_dense_replace"))
            if isinstance(layers, int) and isinstance(dense, int) and layers < 1_000 and dense >= 0:
                return f"[{','.join(['0'] * min(dense, layers) + ['1'] * (layers - dense))}]"
        raise _NotShown
