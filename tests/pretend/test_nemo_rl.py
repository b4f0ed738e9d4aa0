"""hcp's program for NeMo-RL: the configuration that its keys make."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from megatron_hcp import pretend

pytestmark = pytest.mark.torch


def test_keys_with_dots_make_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    import runpy

    for name in ("nemo_rl", "nemo_rl.models", "nemo_rl.models.megatron"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["nemo_rl.models.megatron"], "setup", None, raising=False)
    program = runpy.run_path(str(Path(pretend.__file__).with_name("nemo_rl_program.py")))
    told = program["nested"]({"a.b.c": 1, "a.d": [2], "e": None, "f": None, "f.g": 3})
    assert told == {"a": {"b": {"c": 1}, "d": [2]}, "e": None, "f": {"g": 3}}
