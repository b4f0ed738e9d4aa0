"""Steps predicted by constants that were fitted without their model, their GPU, or the pair of both; and the margins.

A row left out alone flatters: another release of the same layout is still fitted.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rows import Measured

from megatron_hcp.plan.constants import rates_for
from megatron_hcp.plan.time.step import step_time

LEFT_OUT: dict[str, Callable[[Measured], object]] = {
    "model": lambda row: row.model.name,
    "gpu": lambda row: row.job.gpu.name,
    "pair": lambda row: (row.model.name, row.job.gpu.name),
}
COVERED = 0.9
"""The share of rows left out that the printed margin has to cover."""
Fit = Callable[[Sequence[Measured]], dict[str, float]]


class Predicted(NamedTuple):
    """A row's error, relative, and the margin beside it before `margin.scale`."""

    error: float
    margin: float


def left_out(name: str, rows: Sequence[Measured], always: Sequence[Measured], fitted: Fit) -> list[Predicted]:
    """Each of the rows predicted without those that share its model, GPU or pair; `always` are fitted each time."""
    key = LEFT_OUT[name]
    found = []
    for group in dict.fromkeys(map(key, rows)):
        values = fitted([*(row for row in rows if key(row) != group), *always])
        found += [predicted(row, values) for row in rows if key(row) == group]
    return found


def predicted(row: Measured, values: dict[str, float]) -> Predicted:
    """That row by these constants."""
    rates = rates_for(row.job, {**values, "margin.scale": 1.0, "margin.gpu": 1.0})
    time = step_time(row.model, row.layout, row.job, rates)
    return Predicted(time.seconds / row.seconds - 1, time.band)


def left_out_scores(found: Sequence[Predicted], values: dict[str, float], is_gpu: bool = False) -> str:
    """Median, 90th percentile and largest error; how many are within the printed margin, and how wide it is."""
    scale = values["margin.scale"] * (values["margin.gpu"] if is_gpu else 1.0)
    errors = sorted(abs(row.error) for row in found)
    margins = sorted(scale * row.margin for row in found)
    within = sum(abs(row.error) <= scale * row.margin for row in found) / len(found)
    wide = sum(margin > 0.4 for margin in margins) / len(found)
    return (
        f"{len(found):4} rows: median {statistics.median(errors):.1%}, p90 {errors[int(0.9 * (len(errors) - 1))]:.1%}, "
        f"max {errors[-1]:.1%}; {within:.0%} within the margin, its median {statistics.median(margins):.0%}, "
        f"{wide:.0%} of them above 40 %"
    )


def with_margins(
    values: dict[str, float], rows: Sequence[Measured], always: Sequence[Measured], fitted: Fit
) -> dict[str, float]:  # fmt: skip
    """The constants with the scales of margins that cover nine of ten rows of a pair, and of a GPU, left out."""
    pair = _scale(left_out("pair", rows, always, fitted))
    gpu = _scale(left_out("gpu", rows, always, fitted))
    return {**values, "margin.scale": pair, "margin.gpu": max(1.0, math.ceil(1000 * gpu / pair) / 1000)}


def _scale(found: Sequence[Predicted]) -> float:
    ratios = sorted(abs(row.error) / row.margin for row in found)
    return math.ceil(1000 * ratios[math.ceil(COVERED * len(ratios)) - 1]) / 1000
