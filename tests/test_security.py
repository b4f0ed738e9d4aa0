"""SECURITY.md promises what tests hold: each row of its table names them, and each is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
_ROW = re.compile(r"(?m)^\| (?P<promise>.+?) \| (?P<tests>.*?) ?\|$")
_TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def promises(text: str) -> dict[str, list[tuple[str, str]]]:
    """Each promise with the tests that hold it; headings, which are bold and hold nothing, are left out."""
    table = text.partition("| promise | held by |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = {row["promise"]: _TEST.findall(row["tests"]) for row in _ROW.finditer(table)}
    return {promise: tests for promise, tests in rows.items() if not re.fullmatch(r"\*\*[^*]+\*\*", promise)}


PROMISES = promises((ROOT / "SECURITY.md").read_text(encoding="utf-8"))


@cache
def names_in(file: str) -> set[str]:
    path = ROOT / "tests" / file
    tree = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else ast.Module([], [])
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("promise", PROMISES)
def test_a_promise_names_tests_and_each_exists(promise: str) -> None:
    assert PROMISES[promise], "no test holds it: add one, or promise less"
    for file, name in PROMISES[promise]:
        assert name in names_in(file), f"tests/{file} has no {name}"


def audited() -> dict[str, list[tuple[str, str]]]:
    """The rows of the security audit, with the tests that keep each mended."""
    lines = (ROOT / "tests" / "audit_rows.txt").read_text(encoding="utf-8").splitlines()[1:]
    rows = (line.split(" | ") for line in lines)
    return {row: re.findall(r"([\w/]+\.py)::(test_\w+)", tests) for row, _, tests in rows}


AUDITED = audited()


def test_every_row_of_the_audit_is_there_once() -> None:
    assert [*AUDITED] == [*(f"S{number}" for number in range(1, 19)), *(f"D{number}" for number in range(16))]


@pytest.mark.parametrize("row", AUDITED)
def test_a_row_of_the_audit_names_tests_and_each_exists(row: str) -> None:
    assert AUDITED[row]
    for file, name in AUDITED[row]:
        assert name in names_in(file), f"tests/{file} has no {name}"


def test_the_table_is_read_whole() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert len(PROMISES) > 20
    assert sum(map(len, PROMISES.values())) == len(_TEST.findall(text)), "a test is named outside the table"


def test_a_promise_without_a_test_would_be_seen() -> None:
    table = "| promise | held by |\n|---|---|\n| **Files** |  |\n| a | `x.py::test_b` |\n| c |  |\n\nd"
    assert promises(table) == {"a": [("x.py", "test_b")], "c": []}
