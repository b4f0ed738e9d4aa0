"""No regular expression of the package takes a time that grows faster than the text: texts come from outside."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.backtracking import slowest_growth

ROOT = Path(__file__).resolve().parents[1]
LINEAR = 5.5
"""More steps for a text four times as long: 4, and what short texts add to that."""
WAYS = {"match", "fullmatch", "search", "findall", "finditer", "split", "sub", "subn"}
FROM_TABLES = {
    ("launch/readers/detect.py", "sign"): "[sign for sign, _ in _SIGNS]",
    ("bash/parser/script.py", "opens"): "[opens for opens, _ in _OPENS_AND_CLOSES.values()]",
    ("bash/parser/script.py", "closes"): "[closes for _, closes in _OPENS_AND_CLOSES.values()]",
    ("launch/dialects/foreign.py", "pattern"): "[pattern for _, _, pattern in _PROGRAMS]",
    ("ground/secret_shapes.py", "pattern"): (
        "[*(f'(?<![0-9A-Za-z]){text}(?![0-9A-Za-z])' for text in (*_TOKENS.values(), *_TOKENS_WITH.values())),"
        " *_PLACES.values()]"
    ),
    ("launch/options.py", "shape[0]"): "[shape for shape, _ in _SHAPES.values()]",
    ("dryrun/models.py", "family[0]"): "[family[0] for family in _FAMILIES]",
    (
        "judge/repair/renaming.py",
        r"re.sub('[-_]', '[-_]', re.escape(old).replace('\\-', '-'))",
    ): "['[-_][-_]seq[-_]length']",
    ("launch/images.py", "pattern"): "[*_ELSEWHERE]",
    ("dryrun/small.py", "keys.replace(' ', '|')"): "[keys.replace(' ', '|') for keys in _LEFT_OUT.values()]",
    ("skills/json_schema.py", "_strict(schema['pattern'])"): (
        "[_strict(json.loads(text)) for path in pack_dir('schemas').glob('hcp.card.*.json')"
        """ for text in re.findall(r'"pattern": ("[^"]+")', path.read_text('utf-8'))]"""
    ),
    (
        "triage/raised/tracebacks.py",
        r"_DIGITS.sub('\\\\d+', re.escape(head['logger']))",
    ): r"[r'worker-\d+ \| \[step \d+\] ']",
    ("triage/inputs/lead.py", "_pattern_of(shape)"): "[_pattern_of(b'node-3 trainer [17] ')]",
    ("triage/inputs/lead.py", "b'(?m)^' + _pattern_of(lead)"): "[b'(?m)^' + _pattern_of(b'node-3 trainer [17] ')]",
    ("triage/line.py", "text"): "[prefix.pattern for prefix in _PREFIXES]",
    ("triage/signatures/table.py", "row.pattern"): "[row.pattern for row in SIGNATURES]",
    ("triage/remedy/correction.py", "names + said.get('text', '')"): "[row.shape.pattern for row in corrections()]",
    ("triage/remedy/correction.py", "code"): "[row.code.pattern for row in corrections() if row.code]",
    ("triage/remedy/correction.py", "where"): "[row.where.pattern for row in corrections() if row.where]",
    (
        "triage/line_reader.py",
        "row.context",
    ): "[row.context for row in __import__('megatron_hcp.triage.signatures.table', fromlist=['x']).SIGNATURES]",
}
"""Patterns that a call takes out of a table: (module, how the call names it) -> the table's patterns."""
TRIED_AT_THE_START = {"render/values.py", "triage/line.py"}
"""Modules whose tables of patterns are used with `match`."""


class Use(NamedTuple):
    """A pattern, where it stands, and how it is tried."""

    where: str
    pattern: re.Pattern[Any]
    how: str


def uses(path: Path) -> Iterator[Use]:
    """Every regular expression of a module."""
    tree = ast.parse(path.read_text("utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    own = [call for call in calls if _object(call) == "re" and _method(call) in {*WAYS, "compile"}]
    if not own:
        return
    inside = path.relative_to(ROOT / "src" / "megatron_hcp")
    module = importlib.import_module(".".join(["megatron_hcp", *inside.with_suffix("").parts]))
    named = {
        id(node.value): node.targets[0].id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for call in own:
        how = {_method(call)}
        if how == {"compile"}:
            name = named.get(id(call))
            how = {_method(other) for other in calls if _object(other) == name} & WAYS
            how = how or ({"match"} if str(inside) in TRIED_AT_THE_START else {"finditer"})
        for pattern in compiled(call, str(inside), vars(module)):
            for way in how:
                yield Use(
                    f"{inside}:{call.lineno}", pattern, way if way in ("match", "fullmatch", "search") else "finditer"
                )


def compiled(call: ast.Call, module: str, namespace: dict[str, Any]) -> list[re.Pattern[Any]]:
    """The patterns that a call may be given; variables within a pattern stand for a word."""
    written = ast.unparse(call.args[0])
    place = {"compile": 1, "sub": 4, "subn": 4, "split": 3}.get(_method(call), 2)
    flags = [*call.args[place : place + 1], *(word.value for word in call.keywords if word.arg == "flags")]
    flag = eval(ast.unparse(flags[0]), namespace) if flags else 0
    if (module, written) in FROM_TABLES:
        return [re.compile(text, flag) for text in eval(FROM_TABLES[module, written], dict(namespace)) if text]
    if written.startswith("re.escape("):  # a word, whatever it is
        return [re.compile("x", flag)]
    if isinstance(call.args[0], ast.JoinedStr):
        return [re.compile("".join(_part(part, namespace) for part in call.args[0].values), flag)]
    try:
        return [re.compile(eval(written, dict(namespace)), flag)]
    except NameError:
        raise AssertionError(
            f"{module}:{call.lineno}: {written} is none of the patterns that this test knows"
        ) from None


def _part(part: ast.expr, namespace: dict[str, Any]) -> str:
    if isinstance(part, ast.FormattedValue):
        return str(namespace.get(ast.unparse(part.value), "x"))
    assert isinstance(part, ast.Constant)
    return str(part.value)


def _method(call: ast.Call) -> str:
    assert isinstance(call.func, ast.Attribute)
    return call.func.attr


def _object(call: ast.Call) -> str:
    assert isinstance(call.func, ast.Attribute)
    return ast.unparse(call.func.value)


@cache
def all_uses() -> tuple[Use, ...]:
    found = (use for path in sorted((ROOT / "src" / "megatron_hcp").rglob("*.py")) for use in uses(path))
    return tuple({(use.pattern, use.how): use for use in found}.values())


@pytest.mark.slow
def test_no_pattern_takes_longer_than_its_text_is_long() -> None:
    slow = []
    for use in all_uses():
        growth, text = slowest_growth(use.pattern, use.how, enough=LINEAR)
        if growth > LINEAR:
            slow.append(f"{use.where} {use.how} {use.pattern.pattern!r}: {growth:.1f} at {text}")
    assert not slow, "\n".join(slow)


def test_patterns_are_tried_with_re_alone() -> None:
    for path in (ROOT / "src" / "megatron_hcp").rglob("*.py"):
        text = path.read_text()
        assert not re.search(
            r"^\s*(import (fnmatch|regex)|from (re|fnmatch|regex|glob) import|import re as)", text, re.M
        ), path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "how"),
    [
        (r"^(a|aa)*$", "search"),
        (r"(\w*(?:KEY|TOKEN|SECRET|PASSW|CREDENTIAL)\w*=)[^,\s]+", "finditer"),
        (r"[A-Za-z_]\w*\+?=(?:\"[^\"\n]*\"|'[^'\n]*'|\([^()\n]*\)|[^\s\"'()])*[ \t]+[A-Za-z_]\w*\+?=", "search"),
        (r"(?m)^\s*(?:import \w|from \S+ import |def \w+\(|class \w+)", "finditer"),
        (r"(a+)+b", "match"),
        (r"\w+=", "search"),
        (r"a*a*b", "match"),
        (r"\w\[[^]]*\]=", "search"),
    ],
)
def test_slow_patterns_are_told(pattern: str, how: str) -> None:
    assert slowest_growth(re.compile(pattern), how, enough=LINEAR)[0] > LINEAR


@pytest.mark.parametrize(
    ("pattern", "how"),
    [
        (r"[a-z]+(-[a-z]+)*", "fullmatch"),
        (r"\d{1,9}", "finditer"),
        (r"KEY=(\w+)", "finditer"),
        (r"(?m)^[ \t]*#", "finditer"),
    ],
)
def test_linear_patterns_are_not_told(pattern: str, how: str) -> None:
    assert slowest_growth(re.compile(pattern), how)[0] < LINEAR
