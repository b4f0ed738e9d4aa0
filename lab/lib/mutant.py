"""One mutant of a rule, and how it is created in a throw-away process."""

from __future__ import annotations
import __future__

import ast
import dataclasses
import gc
import importlib
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from mutations import Mutation, mutations

from support.rule_code import Part, node_at, tree_of

COMPREHENSIONS = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>")
OTHER = {
    "severity": {"error": "warning", "warning": "error", "info": "warning"},
    "effect": defaultdict(lambda: "crash", crash="silent"),
    "stage": defaultdict(lambda: "init", init="config"),
}


@dataclasses.dataclass(frozen=True)
class Mutant:
    part: Part
    mutation: Mutation | None
    whole: str = ""
    """What is done to a rule as a whole, where no piece of its code changes: `applies: always`, `severity: …`."""

    @property
    def where(self) -> str:
        """The rule's id, or the name of what several rules use."""
        return self.part.owners[0] if len(self.part.owners) == 1 else self.part.name

    @property
    def place(self) -> str:
        line = self.mutation.line if self.mutation else self.part.line
        return f"src/{self.part.module.replace('.', '/')}.py:{line}"

    @property
    def key(self) -> tuple[str, str]:
        """The name by which a list of known mutants can refer to it."""
        return self.where, str(self)

    def __str__(self) -> str:
        return self.whole or str(self.mutation)


def mutants_of(parts: Iterable[Part], rules: dict[str, Any]) -> Iterator[Mutant]:
    for part in parts:
        node = node_at(part.module, part.path)
        for mutation in mutations(node, part.path):
            yield Mutant(part, mutation)
        rule = next((rules[owner] for owner in part.owners if rules[owner].check.__name__ == part.name), None)
        if rule is not None and rule.check.__module__ == part.module:
            for how in ("always", "never", "the opposite"):
                yield Mutant(part, None, f"applies: {how}")
            for field, other in OTHER.items():
                yield Mutant(part, None, f"{field}: {other[getattr(rule, field)]}")


class Held:
    """Where the loaded modules and the collected tests hold rules and the code of rules."""

    def __init__(self, rules: dict[str, Any]) -> None:
        self.rules = rules
        self.functions: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        self.dicts: list[dict[Any, Any]] = []
        ours = {*map(id, rules.values())}
        gc.unfreeze()  # the tests' own collection froze what is loaded
        for held in gc.get_objects():
            if isinstance(held, FunctionType) and str(held.__module__).startswith("megatron_hcp.rules"):
                self.functions[_place(held.__code__)].append(held)
            elif isinstance(held, dict) and any(
                id(value) in ours or (type(value) is tuple and not ours.isdisjoint(map(id, value)))
                for value in held.values()
            ):
                self.dicts.append(held)
        gc.freeze()  # children share the pages

    def break_by(self, mutant: Mutant) -> None:
        """Makes the mutant of what is loaded; only for a forked child."""
        if mutant.mutation is None:
            self._replace_rule(mutant)
            return
        module = importlib.import_module(mutant.part.module)
        number = mutant.part.path[0][1]
        old = tree_of(mutant.part.module).body[number or 0]
        new = mutant.mutation.apply(tree_of(mutant.part.module)).body[number or 0]
        if mutant.part.is_table:
            _replace_table(module, mutant.part.name, new)
        else:
            self._replace_code(module, old, new)

    def _replace_rule(self, mutant: Mutant) -> None:
        old = self.rules[mutant.part.owners[0]]
        field, _, value = mutant.whole.partition(": ")
        applies = {"always": lambda v: True, "never": lambda v: False, "the opposite": lambda v: not old.applies(v)}
        new = old._replace(**{field: applies[value] if field == "applies" else value})
        for held in self.dicts:
            for key, value in list(held.items()):
                if value is old:
                    held[key] = new
                elif type(value) is tuple and any(item is old for item in value):
                    held[key] = tuple(new if item is old else item for item in value)

    def _replace_code(self, module: ModuleType, old: ast.stmt, new: ast.stmt) -> None:
        """Gives the functions and lambdas of a statement their new code, wherever they are held."""
        replaced = 0
        for before, after in zip(_codes(_compiled(module, old)), _codes(_compiled(module, new))):
            held = self.functions[_place(before)]
            assert before.co_name == after.co_name and len({function.__code__ for function in held}) <= 1, before
            if before.co_freevars and not after.co_freevars:
                after = after.replace(co_freevars=before.co_freevars)  # the function still has its closure
            for function in held if before != after else ():
                function.__code__ = after
                replaced += 1
        assert replaced, "nothing holds the code that the mutant changes"


def _place(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_name, code.co_firstlineno


def _replace_table(module: ModuleType, name: str, changed: Any) -> None:
    value = eval(compile(ast.Expression(changed.value), str(module.__file__), "eval"), vars(module))
    old = vars(module)[name]
    for other in list(sys.modules.values()):
        if getattr(other, "__name__", "").startswith("megatron_hcp.rules") and vars(other).get(name) is old:
            setattr(other, name, value)


def _compiled(module: ModuleType, statement: ast.stmt) -> CodeType:
    flags = __future__.annotations.compiler_flag
    return compile(ast.Module([statement], []), str(module.__file__), "exec", flags=flags, dont_inherit=True)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of every function and lambda in a piece of code, also of those that are made when it runs."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and constant.co_name not in COMPREHENSIONS:
            yield constant
            yield from _codes(constant)
