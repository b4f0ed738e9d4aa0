"""What of ms-swift's surroundings is changed: code of others isn't run, and the optimizer is the last that is built."""

from __future__ import annotations

from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from megatron_hcp.pretend.stages import PROGRESS, and_no_further
from megatron_hcp.pretend.stand_ins.frameworks.ms_swift import _without_code, take_release_from
from support.rows import rows

pytestmark = pytest.mark.torch


def test_a_model_is_made_without_its_folders_code_whatever_is_asked() -> None:
    made = _without_code(lambda *args, **kwargs: (args, kwargs))
    assert made("a", dtype=1, trust_remote_code=True) == (("a",), {"dtype": 1, "trust_remote_code": False})


def test_the_release_of_megatron_core_is_that_of_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", metadata.version)
    take_release_from(SimpleNamespace(__version__="0.99.1"))
    assert metadata.version("megatron-core") == "0.99.1" and metadata.version("torch") == torch.__version__


@rows("until, ends_with", [("optimizer", "Reached"), ("data", "NotImplementedError")])
def test_the_optimizer_is_built_and_nothing_after_it(
    monkeypatch: pytest.MonkeyPatch, until: str, ends_with: str
) -> None:
    built: list[Any] = []
    monkeypatch.setattr(PROGRESS, "until", until)
    monkeypatch.setattr(PROGRESS, "stage", "optimizer")
    with pytest.raises(BaseException) as raised:
        and_no_further(built.append, "data")("optimizer")
    assert built == ["optimizer"] and type(raised.value).__name__ == ends_with
