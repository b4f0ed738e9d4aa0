"""Which repository a file lies in."""

from __future__ import annotations

import os
from pathlib import Path

from megatron_hcp.ground.repository import enclosing_repository


def test_the_nearest_repository_counts(tmp_path: Path) -> None:
    inner = tmp_path / "outer" / "inner"
    (inner / "a").mkdir(parents=True)
    (tmp_path / "outer" / ".git").mkdir()
    assert enclosing_repository(str(inner / "a")) == str(tmp_path / "outer")
    (inner / "pyproject.toml").touch()
    assert enclosing_repository(str(inner / "a")) == str(inner) == enclosing_repository(str(inner))


def test_the_root_of_the_file_system_is_no_repository() -> None:
    assert enclosing_repository(os.sep) is None
