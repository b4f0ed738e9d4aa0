"""Rows that were measured later than the constants are scored once, before they may be fitted, and keep their score."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.plan.layout import Layout, PlanJob


@pytest.fixture
def later(root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(root / "lab" / "plan"), str(root / "lab" / "lib"), *sys.path])
    return import_module("later")


def measured(seconds: float, name: str = "31.01 llama3-8b h100 BF16 tp=1") -> Any:
    rows = import_module("rows")
    job = PlanJob(8, 8, gpu_named("h100"), 8, 8192, 128)
    return rows.Measured(name, rows.model_named("llama3-8b"), Layout(), job, seconds, "counted")


def test_a_row_is_scored_by_the_constants_of_the_tree_with_their_digest_and_margin(later: ModuleType) -> None:
    from megatron_hcp.plan.constants import rates_for
    from megatron_hcp.plan.constants_fitted import FITTED
    from megatron_hcp.plan.time.step import step_time

    row = measured(10.0)
    (score,) = later.with_scores([row], {}, "2031-01-02").values()
    time = step_time(row.model, row.layout, row.job, rates_for(row.job))
    assert score.error == pytest.approx(time.seconds / 10.0 - 1) and score.day == "2031-01-02"
    assert score.constants == later.digest(FITTED) != later.digest({**FITTED, "bandwidth": 0.5})
    assert score.margin == pytest.approx(time.band, rel=0.01)


def test_a_row_that_has_a_score_keeps_it_and_another_measurement_of_it_gets_its_own(later: ModuleType) -> None:
    record = later.with_scores([measured(10.0)], {}, "2031-01-02")
    again = later.with_scores([measured(10.0), measured(20.0)], record, "2032-03-04")
    assert [score.day for score in again.values()] == ["2031-01-02", "2032-03-04"]


def test_only_first_rows_and_scored_ones_may_be_fitted(later: ModuleType) -> None:
    row = measured(10.0)
    assert later.unscored([row], {}, frozenset()) == [row]
    assert not later.unscored([row], later.with_scores([row], {}, "2031-01-02"), frozenset())
    assert not later.unscored([row], {}, frozenset({later.key_of(row)}))


def test_the_record_is_read_as_it_was_written_and_shares_nothing_with_the_first_rows(later: ModuleType) -> None:
    record, text = later.scored(), later.SCORES.read_text(encoding="utf-8")
    assert len(record) > 40 and len(later.first_rows()) > 40
    assert [str(score) for score in record.values()] == [line for line in text.splitlines() if line[0] != "#"]
    assert not set(record) & later.first_rows()
