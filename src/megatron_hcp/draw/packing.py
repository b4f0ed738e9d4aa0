"""A picture of packed rows: how full they are, for each row length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from megatron_hcp.core.pack_plan import BINS, PackPlan
from megatron_hcp.draw.template import fill_template

_BAR_W, _PANEL_H, _GAP = 24, 90, 64
_NUMBER_H = 14
"""Room above the highest bar for its number."""


def render_rows(plans: Sequence[PackPlan], best: PackPlan) -> str:
    """An SVG with one panel per row length: a histogram of row fullness in steps of 5 %."""
    panels = [_panel(number, plan, plan is best) for number, plan in enumerate(plans)]
    return fill_template(
        "packing.svg.j2", panels=panels, width=BINS * _BAR_W + 96, height=40 + len(plans) * (_PANEL_H + _GAP)
    )


def _panel(number: int, plan: PackPlan, is_best: bool) -> dict[str, Any]:
    most = max(plan.fullness) or 1
    top = 40 + number * (_PANEL_H + _GAP)
    bars = []
    for place, rows in enumerate(plan.fullness):
        height = round((_PANEL_H - _NUMBER_H) * rows / most, 1)
        span = f"{place * 100 // BINS} to {(place + 1) * 100 // BINS} % full"
        bars.append(
            {
                "x": 48 + place * _BAR_W, "y": round(top + _PANEL_H - height, 1), "height": height,
                "width": _BAR_W - 3, "label": f"{rows:,} rows are {span}",
                "rows": f"{rows:,}" if rows else "", "middle": 48 + place * _BAR_W + _BAR_W // 2 - 2,
            }
        )  # fmt: skip
    title = f"rows of {plan.pack_size:,} tokens: {plan.rows:,} rows, {plan.waste:.1%} without a token"
    if plan.lost_sequences:
        title += f", {plan.lost_sequences:,} sequences too long"
    return {"top": top, "base": top + _PANEL_H, "title": title, "bars": bars, "best": is_best}
