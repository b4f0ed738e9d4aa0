"""Tables and rules as parameters: the id of a rule stands in every test id below the folder of its family."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("support.rules", "support.patches")

from megatron_hcp.launch.fact import Launch  # noqa: E402 - after the line above
from megatron_hcp.rules.registry import RULES  # noqa: E402
from support.patches import patched  # noqa: E402, F401 - a fixture
from support.rules import FAMILIES, family_of, launch  # noqa: E402

HERE = Path(__file__).parent
TABLES = {"verdict_rows": "VERDICTS", "text_rows": "TEXTS", "fix_rows": "FIXES"}
"""The table of a test module that each parameter walks through."""


def by_rule(table: Iterable[tuple[Any, ...]]) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of each rule; the rule stands first in a row."""
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for row in table:
        rows.setdefault(row[0], []).append(row)
    return rows


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for parameter, name in TABLES.items():
        if parameter in metafunc.fixturenames:
            rows = by_rule(getattr(metafunc.module, name))
            metafunc.parametrize(parameter, list(rows.values()), ids=list(rows))
    if "rule" in metafunc.fixturenames:
        folder = Path(metafunc.module.__file__ or "").parent.name
        rules = [rule for rule in RULES if folder not in FAMILIES or family_of(rule.id) == folder]
        metafunc.parametrize("rule", rules, ids=[rule.id for rule in rules])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test below a family's folder that names no rule of it stops the run: nobody would find it by its rule."""
    for item in items:
        folder = item.path.parent.name
        if item.path.parents[1] == HERE and folder in FAMILIES:
            ids = [rule.id for rule in RULES if family_of(rule.id) == folder]
            name = item.nodeid.rpartition("::")[2].upper()
            if not any(rule_id in name for rule_id in ids):
                raise pytest.UsageError(f"{item.nodeid} names no rule of {folder}, such as {ids[0]}")


@pytest.fixture
def launch_of() -> Callable[..., Launch]:
    return launch
