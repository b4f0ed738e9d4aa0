"""How rules compare versions: by PEP 440, with what a development build leaves open."""

from __future__ import annotations

import pytest

from megatron_hcp.rules.view import Unknown, View
from support.rules import launch


def at_least(version: str, minimum: str) -> bool | str:
    try:
        return View(launch("bridge", "", f"te={version}")).at_least("te", minimum)
    except Unknown as unknown:
        return f"needs {unknown.name}"


@pytest.mark.parametrize(
    ("version", "minimum", "expected"),
    [
        ("2.19", "2.19", True),
        ("2.19.0", "2.19", True),
        ("2.18.9", "2.19", False),
        ("2.20.2", "2.20", True),
        ("2.20.2+cu13", "2.20.2", True),
        ("2.20.0rc1", "2.20", False),
        ("2.20.0rc1", "2.19", True),
        ("2.20.0.post1", "2.20", True),
        ("2.20.0.dev0", "2.20", False),
        ("2.20.0.dev0", "2.21", False),
        ("2.20.0.dev0", "2.19", "needs te"),
        ("2.20.0.dev0+3f2a9c", "2.19.1", "needs te"),
        ("2.20.0.dev0", "2.18", True),
        ("main", "2.18", "needs te"),
    ],
)
def test_versions_are_ordered_by_pep_440_and_a_development_build_left_before_the_release_before_it(
    version: str, minimum: str, expected: bool | str
) -> None:
    assert at_least(version, minimum) == expected
