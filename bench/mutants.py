"""Breaks every rule in every small way and runs the tests of its family: `python bench/mutants.py [--family hcp]`.

A mutant is one change to a rule: a comparison, a constant, a condition, a version bound, an early return, what a
finding overrides, whether the rule applies, its severity; or to a function or table that rules use. Mutants live in
the memory of forked children, so the checkout is never touched. A mutant is dead if a test whose id names its rule
goes red below tests/rules/<family>. The others are listed, and the exit status is 1, unless mutants_equivalent.yaml
says why no test can tell them from the rule. With --seconds each rule is broken once on disk, in a copy, and the time
that `pytest tests/rules/<family>` takes to go red is measured.
"""

from __future__ import annotations

import argparse
import ast
import copy
import dataclasses
import gc
import importlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "src"), str(ROOT / "tests")]

from mutations import Mutation, mutations  # noqa: E402

EQUIVALENT = Path(__file__).with_name("mutants_equivalent.yaml")
FRAMEWORK = ("engine", "fixes", "patch", "registry", "report", "rule", "upstream")
"""Modules of hcp.rules that serve all rules alike: they have tests of their own."""
MARKERS = "not upstream and not torch and not slurm and not slow"
TIMEOUT_S = 60
OTHER = {
    "severity": {"error": "warning", "warning": "error", "info": "warning"},
    "effect": defaultdict(lambda: "crash", crash="silent"),
    "stage": defaultdict(lambda: "init", init="config"),
}


@dataclasses.dataclass(frozen=True)
class Part:
    """A function, lambda or table, and the rules that use it."""

    module: str
    name: str
    line: int
    path: tuple[tuple[str, int | None], ...]
    owners: tuple[str, ...]
    is_table: bool

    @property
    def family(self) -> str:
        """The family whose tests must notice: that of the folder, if one of its rules uses this, else the first."""
        families = [family_of(owner) for owner in self.owners]
        here = self.module.split(".")[2]
        return here if here in families else families[0]


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

    def __str__(self) -> str:
        return self.whole or str(self.mutation)


def family_of(rule_id: str) -> str:
    return rule_id.rstrip("0123456789").lower()


# What rules are made of.


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(source_of(module))


@cache
def source_of(module: str) -> str:
    return Path(str(importlib.import_module(module).__file__)).read_text(encoding="utf-8")


def parts_of(rules: Iterable[Any]) -> list[Part]:
    """Every part of every rule, with all rules that use it."""
    found: dict[tuple[str, int, bool], tuple[Any, set[str]]] = {}
    for rule in rules:
        for key, place in _reached(rule):
            found.setdefault(key, (place, set()))[1].add(rule.id)
    return [
        Part(module, name, line, path, tuple(sorted(owners)), is_table)
        for (module, line, is_table), ((name, path), owners) in sorted(found.items())
    ]


def _reached(rule: Any) -> Iterator[tuple[tuple[str, int, bool], tuple[str, Any]]]:
    """The rule's function, its `applies`, and what these use, followed through all modules of rules."""
    module = rule.check.__module__
    index, node = _definition(module, rule.check.__name__)
    assert isinstance(node, ast.FunctionDef)
    waiting: list[tuple[str, ast.AST, str, Any]] = [(module, node, node.name, (("body", index),))]
    call = next(item for item in node.decorator_list if isinstance(item, ast.Call))
    which, applies = next((n, item.value) for n, item in enumerate(call.keywords) if item.arg == "applies")
    decorator = node.decorator_list.index(call)
    way = (("body", index), ("decorator_list", decorator), ("keywords", which), ("value", None))
    waiting.append((module, applies, f"{node.name}: applies", way))
    seen = set()
    while waiting:
        module, node, name, path = waiting.pop()
        is_table = isinstance(node, ast.Assign | ast.AnnAssign)
        key = (module, getattr(node, "lineno", 0), is_table)
        if key in seen:
            continue
        seen.add(key)
        yield key, (name, path)
        namespace = vars(importlib.import_module(module))
        for used in _names(node):
            owner = _owner(namespace, used)
            if owner is None:
                continue
            home, original = owner
            where = _definition(home, original)
            if where is not None:
                waiting.append((home, where[1], original, (("body", where[0]),)))


def _names(node: ast.AST) -> set[str]:
    """The names that a function's body, a lambda or a table reads."""
    parts = node.body if isinstance(node, ast.FunctionDef) else [node]
    return {
        item.id
        for part in parts
        for item in ast.walk(part)
        if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load)
    }


def _owner(namespace: dict[str, Any], name: str) -> tuple[str, str] | None:
    """The module of rules that defines a name, and its name there."""
    here = namespace["__name__"]
    if name not in namespace:
        return None
    for node in tree_of(here).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    home = str(node.module)
                    served = home.startswith("hcp.rules.") and home.split(".")[2] not in (*FRAMEWORK, "view")
                    return (home, alias.name) if served else None
    return here, name


def _definition(module: str, name: str) -> tuple[int, ast.AST] | None:
    for index, node in enumerate(tree_of(module).body):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return index, node
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return index, node
    return None


def node_at(module: str, path: tuple[tuple[str, int | None], ...]) -> ast.AST:
    node: Any = tree_of(module)
    for field, index in path:
        node = getattr(node, field) if index is None else getattr(node, field)[index]
    return node  # type: ignore[no-any-return]


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


# How one is made, in a process that is thrown away.


def break_it(mutant: Mutant, rules: dict[str, Any]) -> None:
    """Changes the loaded modules; only for a forked child."""
    if mutant.mutation is None:
        rule = rules[mutant.part.owners[0]]
        field, _, value = mutant.whole.partition(": ")
        applies = rule.applies
        replaced = {"always": lambda v: True, "never": lambda v: False, "the opposite": lambda v: not applies(v)}
        object.__setattr__(rule, field, replaced[value] if field == "applies" else value)
        return
    module = importlib.import_module(mutant.part.module)
    changed = mutant.mutation.apply(tree_of(mutant.part.module))
    if mutant.part.is_table:
        _replace_table(module, mutant.part, changed)
    else:
        _replace_code(module, changed)


def _replace_table(module: ModuleType, part: Part, changed: ast.Module) -> None:
    statement: Any = changed.body[part.path[0][1]]  # type: ignore[index]
    value = eval(compile(ast.Expression(statement.value), str(module.__file__), "eval"), vars(module))
    old = vars(module)[part.name]
    for other in list(sys.modules.values()):
        if getattr(other, "__name__", "").startswith("hcp.rules"):
            for name, held in list(vars(other).items()):
                if held is old and name == part.name:
                    setattr(other, name, value)


def _replace_code(module: ModuleType, changed: ast.Module) -> None:
    """Gives each function of the module its code from the changed tree, wherever the function is held."""
    file = str(module.__file__)
    before = list(_codes(compile(tree_of(module.__name__), file, "exec", dont_inherit=True)))
    after = list(_codes(compile(changed, file, "exec", dont_inherit=True)))
    assert [code.co_name for code in before] == [code.co_name for code in after]
    pairs = dict(zip(before, after))
    for held in gc.get_objects():
        if isinstance(held, FunctionType) and held.__code__ in pairs:
            held.__code__ = pairs[held.__code__]


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The module's functions and lambdas, without what is nested in them."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant


# How the tests of a family are run on one.


class Server:
    """A pytest plugin: once the tests are collected and have passed, every mutant gets a child of its own."""

    def __init__(self, mutants: list[Mutant], rules: dict[str, Any], report: Callable[[Mutant, str], None]) -> None:
        self.mutants, self.rules, self.report = mutants, rules, report

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Failed(f"{session.testsfailed} errors during collection")
        tests: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in session.items:
            for rule_id in self.rules:
                if rule_id in item.nodeid.rpartition("::")[2].upper():
                    tests[f"{item.path.parent.name} {rule_id}"].append(item)
        # Here, unbroken: a red test proves nothing, and what a test caches is there for every child.
        wanted = {(mutant.part.family, owner) for mutant in self.mutants for owner in mutant.part.owners}
        items = dict.fromkeys(item for family, owner in sorted(wanted) for item in tests[f"{family} {owner}"])
        red = _first_red(session, list(items))
        if red:
            raise session.Failed(f"{red} is red without any mutant")
        for mutant in self.mutants:
            owned = [item for owner in mutant.part.owners for item in tests[f"{mutant.part.family} {owner}"]]
            self.report(mutant, self._verdict(session, mutant, list(dict.fromkeys(owned))))
        return True

    def _verdict(self, session: pytest.Session, mutant: Mutant, items: list[pytest.Item]) -> str:
        """The test that goes red; "" if none does."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                signal.alarm(TIMEOUT_S)
                os.close(reading)
                break_it(mutant, self.rules)
                os.write(writing, (_first_red(session, items) or "").encode())
                status = 0
            except BaseException as error:  # whatever it is: the parent must hear of it
                os.write(writing, f"!{type(error).__name__}: {error}".encode())
            finally:
                os._exit(status)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read().decode(errors="replace")
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
            return f"no answer within {TIMEOUT_S} s"
        if status:
            raise RuntimeError(f"{mutant.where}, {mutant}: {said}")
        return said


def _first_red(session: pytest.Session, items: list[pytest.Item]) -> str:
    failed: list[str] = []

    class Listener:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                failed.append(report.nodeid)

    session.config.pluginmanager.register(Listener(), "listener")
    try:
        for index, item in enumerate(items):
            following = items[index + 1] if index + 1 < len(items) else None
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if failed:
                return failed[0]
    finally:
        session.config.pluginmanager.unregister(name="listener")
    return ""


def run(mutants: list[Mutant], rules: dict[str, Any], report: Callable[[Mutant, str], None]) -> None:
    """Collects the tests of the mutants' families in this process, and tries every mutant on them."""
    families = sorted({mutant.part.family for mutant in mutants})
    folders = [str(ROOT / "tests" / "rules" / family) for family in families]
    quiet = ["-p", "no:terminal", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib --strict-markers"]
    status = pytest.main([*quiet, "--rootdir", str(ROOT), "-m", MARKERS, *folders], plugins=[Server(mutants, rules, report)])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        sys.exit(f"the tests themselves ended with {status!r}: run pytest {' '.join(folders)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", action="append", default=[])
    parser.add_argument("--rule", action="append", default=[])
    parser.add_argument("--list", action="store_true", help="the mutants, without running anything")
    options = parser.parse_args()
    from hcp.rules.registry import BY_ID, RULES

    parts = parts_of(RULES)
    mutants = [
        m for m in mutants_of(parts, BY_ID)
        if (not options.family or m.part.family in options.family) and (not options.rule or set(options.rule) & set(m.part.owners))
    ]
    if options.list:
        for m in mutants: print(m.where, m.part.module, m.mutation.line if m.mutation else m.part.line, m)
        print(len(mutants)); return
    t=time.time()
    n=[0,0]
    def report(m, red):
        n[bool(red)]+=1
        if not red: print(m.where, m.part.module, m.mutation.line if m.mutation else m.part.line, m, flush=True)
    run(mutants, BY_ID, report)
    print(n, time.time()-t)


if __name__ == "__main__":
    main()
