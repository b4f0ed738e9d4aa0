"""Every rule as a parameter, and a launch's file as its patch leaves it."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("support.patches")

from megatron_hcp.rules.registry import RULES  # noqa: E402 - after the line above
from support.patches import patched  # noqa: E402, F401 - a fixture


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "rule" in metafunc.fixturenames:
        metafunc.parametrize("rule", RULES, ids=[rule.id for rule in RULES])
