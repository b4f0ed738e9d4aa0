"""Every version bound in a rule's code has a row of its table on both sides: at the bound, and one step from it."""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.version import InvalidVersion, Version

from megatron_hcp.rules.registry import RULES
from support.rule_code import node_at, parts_of
from support.rules import FAMILIES, Row, launch

pytestmark = pytest.mark.slow

VERSION = re.compile(r"\d+\.\d+(\.\d+)?")
VERSIONED = ("te", "mcore", "bridge", "verl", "flash_attn", "cudnn")
Release = tuple[int, int, int]


class Bound(NamedTuple):
    """A version in a rule's code; `names` are the facts that may be compared with it."""

    names: tuple[str, ...]
    version: str

    def __str__(self) -> str:
        return f"{'|'.join(self.names)} {self.version}"


def release(text: str) -> Release:
    version = Version(text)
    return version.major, version.minor, version.micro


def bounds_in(node: ast.AST) -> Iterator[Bound]:
    """`at_least("te", "2.19")` names the fact; a version in a table or a constant may be of any."""
    named = set()
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "at_least" and len(call.args) == 2:
            name, version = call.args
            if isinstance(name, ast.Constant) and isinstance(version, ast.Constant):
                named.add(version)
                yield Bound((str(name.value),), str(version.value))
    for item in ast.walk(node):
        match item:
            case ast.Constant(value=str(text)) if item not in named and VERSION.fullmatch(text):
                yield Bound(VERSIONED, text)


def bounds_of_rules() -> dict[str, set[Bound]]:
    bounds: dict[str, set[Bound]] = defaultdict(set)
    for part in parts_of(RULES):
        for bound in bounds_in(node_at(part.module, part.path)):
            for owner in part.owners:
                bounds[owner].add(bound)
    return bounds


@cache
def rows() -> dict[str, list[Row]]:
    """The verdicts of every table, by rule."""
    tables: dict[str, list[Row]] = defaultdict(list)
    for family in FAMILIES:
        for path in sorted(Path(__file__).parent.joinpath(family).glob("test_*.py")):
            module = importlib.import_module(f"rules.{family}.{path.stem}")
            for row in getattr(module, "VERDICTS", ()):
                tables[row[0]].append(row)
    return tables


def stated(row: Row, bound: Bound) -> Iterator[Release]:
    _, dialect, text, assumed, _ = row
    facts = launch(dialect, text, assumed).facts
    for name in bound.names:
        if name in facts:
            try:
                yield release(str(facts[name].value))
            except InvalidVersion:
                continue


BOUNDS = bounds_of_rules()


@pytest.mark.parametrize("rule_id", sorted(BOUNDS))
def test_a_row_stands_on_both_sides_of_every_version_bound(rule_id: str) -> None:
    missing = []
    for bound in sorted(BOUNDS[rule_id]):
        seen = {version for row in rows()[rule_id] for version in stated(row, bound)}
        here = release(bound.version)
        below = (here[0], here[1], here[2] - 1) if here[2] else (here[0], here[1] - 1, 0)
        above = (here[0], here[1], here[2] + 1) if here[2] else (here[0], here[1] + 1, 0)
        # A bound is the first version that differs, or (LAST_BROKEN) the last one that does not.
        if here not in seen:
            missing.append(f"a row with {bound}")
        if not any(below <= version < here for version in seen) and (
            len(bound.names) == 1 or not any(above <= version for version in seen)
        ):
            missing.append(f"a row just beyond {bound}, with {'.'.join(map(str, below))}")
    assert not missing, f"the table of {rule_id} lacks {'; '.join(missing)}"


def test_bounds_are_found_in_calls_and_in_tables() -> None:
    tree = ast.parse('FIRST = {"p2p": "1.8"}\ndef f(v): return v.at_least("te", "2.19") or v.major > 3')
    assert [str(bound) for bound in bounds_in(tree)] == ["te 2.19", f"{'|'.join(VERSIONED)} 1.8"]
