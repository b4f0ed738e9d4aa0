"""Which paths a pattern names."""

from __future__ import annotations

import pytest

from megatron_hcp.project.paths import matches


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("rl", True),
        ("rl/", True),
        ("./rl/deep", True),
        ("run.sh", True),
        ("*.sh", True),
        ("rl/*", True),
        ("rl/*.sh", True),
        ("deep/run.sh", False),
        ("*.yaml", False),
        ("r", False),
        ("*/deep", True),
    ],
)
def test_a_pattern_names_files_and_folders_from_the_root(pattern: str, named: bool) -> None:
    assert matches("rl/deep/run.sh", pattern) is named


def test_a_hostile_pattern_ends() -> None:
    assert not matches("a" * 200, "*a" * 60 + "b")
