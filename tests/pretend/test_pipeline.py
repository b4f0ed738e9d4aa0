"""Which shapes are known of what other pipeline stages send, where micro-batches differ in length."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from megatron_hcp.pretend.stand_ins import pipeline
from support.rows import rows

pytestmark = pytest.mark.torch

SHORT, LONG = torch.zeros(4, 1, 8), torch.zeros(6, 1, 8)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Any:
    def at(*, virtual: int | None, is_first: bool) -> None:
        groups: Any = ModuleType("megatron.core.parallel_state")
        groups.get_virtual_pipeline_model_parallel_world_size = lambda: virtual
        groups.is_pipeline_first_stage = lambda ignore_virtual: is_first and ignore_virtual
        for name in ("megatron", "megatron.core"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        monkeypatch.setitem(sys.modules, groups.__name__, groups)
        pipeline._SENT.clear()
        pipeline._EVER.clear()

    return at


def test_a_gradient_has_the_shape_of_what_was_sent_first(stage: Any) -> None:
    stage(virtual=None, is_first=True)
    pipeline.shapes(SHORT, False, False)
    assert pipeline.shapes(LONG, False, True) == ([0, 0, 0], [4, 1, 8])


def test_what_comes_back_to_the_first_stage_has_the_shape_that_all_have(stage: Any) -> None:
    stage(virtual=2, is_first=True)
    pipeline.shapes(SHORT, False, False)
    assert pipeline.shapes(SHORT, True, True) == ([4, 1, 8], [4, 1, 8])


@rows("virtual, is_first, sent", [
    (2, True, (SHORT, LONG)),
    (2, False, (SHORT,)),
    (None, True, (SHORT,)),
    (2, True, ()),
])  # fmt: skip
def test_nothing_else_is_known_of_what_the_stage_before_sends(
    stage: Any, virtual: int | None, is_first: bool, sent: tuple[torch.Tensor, ...]
) -> None:
    stage(virtual=virtual, is_first=is_first)
    for one in sent:
        pipeline.shapes(one, False, False)
    with pytest.raises(NotImplementedError, match="stage before"):
        pipeline.shapes(None, True, False)
