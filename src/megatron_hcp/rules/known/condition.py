"""The conditions of a row: clauses over facts, as text.

`cp > 1 and thd and not sft and packing in offline energon and cp_comm_type has all_gather`. A clause is a fact's name
(true), `not` and a name (false or null), or a name, an operator and values:

| operator | holds where |
|---|---|
| `=` `!=` | the value is (not) this word, whole number, `true`, `false` or `null` |
| `>` `>=` `<` `<=` | the number compares like this with a number or another fact; for versions, only `>=` and `<` |
| `<>` | the number differs from another fact's |
| `in` | the value is one of these words |
| `has` | some layer has this type (`cp_comm_type`), or the text contains these letters (`hybrid_pattern`) |
| `names` | the text names one of these models: only letters and digits are compared, case-insensitively |

A clause about an unknown fact doesn't hold; an environment variable that the launch doesn't set is `null`.
"""

from __future__ import annotations

import operator
import re
from typing import Any

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.dialects.table import FACTS
from megatron_hcp.rules.cp.view import comm_types
from megatron_hcp.rules.view import View

TIED = "names qwen306b qwen317b qwen34b qwen2505b qwen2515b qwen253b llama321b llama323b gemma"
"""A comparison of `model_name`: models whose output weight is their embedding's."""
_WORDS = {"null": None, "true": True, "false": False}
_COMPARE = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "<>": operator.ne}
_OPERATORS = frozenset(("=", "!=", "in", "has", "names", *_COMPARE))


class Clause(NamedTuple):
    """One clause: `op` is `true`, `false` or an operator."""

    name: str
    op: str
    values: tuple[Any, ...] = ()

    def holds(self, v: View) -> bool:
        is_variable = self.name.startswith("env.")
        if not is_variable and not v.known(self.name):
            return False
        value = v.get(self.name)
        if self.op in ("true", "false"):
            return bool(value) == (self.op == "true")
        if self.op in ("=", "in"):
            return value in self.values
        if self.op == "!=":
            return value not in self.values
        if self.op == "has":
            return self.values[0] in (comm_types(v) if self.name == "cp_comm_type" else str(value))
        if self.op == "names":
            return any(_letters(word) in _letters(str(value)) for word in self.values)
        if self.is_version:
            return isinstance(value, str) and v.at_least(self.name, self.values[0]) == (self.op == ">=")
        other = self.values[0] if type(self.values[0]) is int else v.get(self.values[0])
        return type(value) is type(other) is int and _COMPARE[self.op](value, other)

    @property
    def is_version(self) -> bool:
        return self.name in FACTS and FACTS[self.name].type == "version"


def clauses_of(text: str) -> tuple[Clause, ...]:
    """The clauses of a condition.

    >>> clauses_of("cp > 1 and not sft")
    (Clause(name='cp', op='>', values=(1,)), Clause(name='sft', op='false', values=()))
    """
    return tuple(map(_clause, text.split(" and ")))


def _clause(text: str) -> Clause:
    is_negated = text.startswith("not ")
    words = text.removeprefix("not ").split()
    assert words, f"{text!r} is not a clause"
    name, *comparison = words
    if not comparison:
        return Clause(name, "false" if is_negated else "true")
    assert not is_negated, f"{text!r} negates a comparison"
    op, *values = comparison
    assert op in _OPERATORS and values, f"{text!r} is not a clause"
    clause = Clause(name, op)
    assert op in ("in", "names") or len(values) == 1, f"{text!r} has {len(values)} values"
    assert not clause.is_version or op in (">=", "<"), f"{text!r} compares versions with an unsupported operator"
    is_text = clause.is_version or op == "names" or name.startswith("env.")
    return clause._replace(values=tuple(values) if is_text else tuple(map(_typed, values)))


def _typed(word: str) -> Any:
    if word in _WORDS:
        return _WORDS[word]
    return int(word) if word.isdecimal() else word


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())
