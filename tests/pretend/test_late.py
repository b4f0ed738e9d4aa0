"""Marks before functions of upstream's, by dotted path."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from megatron_hcp.pretend.late import mark
from megatron_hcp.pretend.stages import PROGRESS

pytestmark = pytest.mark.torch


def test_a_stage_begins_where_a_function_or_a_method_is_called_and_a_name_that_is_not_there_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module: Any = ModuleType("upstream_part")
    module.build = lambda: "built"
    module.Trainer = type("Trainer", (), {"train": lambda self: "trained"})
    monkeypatch.setitem(sys.modules, "upstream_part", module)
    monkeypatch.setattr(PROGRESS, "stage", "arguments")
    for path, stage in (("build", "model"), ("Trainer.train", "forward"), ("gone", "data"), ("Gone.gone", "data")):
        mark(f"upstream_part.{path}", stage)
    assert module.build() == "built" and PROGRESS.stage == "model"
    assert module.Trainer().train() == "trained" and PROGRESS.stage == "forward"
    assert not hasattr(module, "gone")
