"""The skill's own code, run as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("tensordict")

pytestmark = pytest.mark.torch

SKILL = Path(__file__).resolve().parents[2] / "skills" / "dynamic-context-parallel" / "references" / "using.md"


def test_the_python_of_the_skill_runs_as_it_stands() -> None:
    (code,) = re.findall(r"^ *```python\n(.*?)^ *```", SKILL.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(dedent(code), names)
    assert [row.tolist() for row in names["merged"]["twice"].unbind()] == [(row * 2).tolist() for row in names["rows"]]
