"""The picture of dynamic-CP plans: ranks down, time across, one panel per plan on one scale, as SVG or as a page.

Colour says how many ranks share a sequence; hatched red is the one thing that costs: ranks that wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from hcp.core.errors import HcpError
from hcp.draw.template import fill_template
from hcp.draw.timeline_rows import Bar, Slot, Timeline

MARGIN, GUTTER, PLOT_W = 28, 56, 1040
HEADER_H, CAPTION_H, AXIS_H, PANEL_GAP = 104, 44, 34, 20
MAX_RANKS, MAX_BARS, MAX_CUTS = 2048, 6000, 20000
Hues = dict[int, int]
"""The colour of each group size that is drawn: the template has one for every power of two up to MAX_RANKS."""
MIN_CUT_PX, MIN_LABEL_W, MIN_LABEL_H = 3.0, 46, 13


def render_timelines(timelines: Sequence[Timeline], failed: Sequence[tuple[str, str]] = ()) -> str:
    """The picture as SVG text. `failed` are (policy, reason) of plans that could not be made.

    Raises:
        HcpError: more ranks than a picture has rows for.
    """
    return fill_template("dcp.svg.j2", **_values(timelines, failed))


def render_page(timelines: Sequence[Timeline], failed: Sequence[tuple[str, str]] = ()) -> str:
    """The picture in an HTML page, with a table of every plan's micro-batches. One file, no script, no network."""
    values = _values(timelines, failed)
    plans = [{"policy": line.policy, "caption": _caption(line), "rows": _rows(line)} for line in timelines]
    return fill_template("dcp.html.j2", svg=fill_template("dcp.svg.j2", **values), plans=plans, **values)


def _values(timelines: Sequence[Timeline], failed: Sequence[tuple[str, str]]) -> dict[str, Any]:
    plan = timelines[0].plan
    if plan.world_size > MAX_RANKS:
        raise HcpError(f"world_size {plan.world_size}: a picture has room for {MAX_RANKS} ranks; plan without one")
    longest = max(line.end for line in timelines)
    row_h = min(26.0, max(0.6, 520 / plan.world_size / (1 if len(timelines) == 1 else 1.5)))
    scale = PLOT_W / longest
    sizes = {bar.size for line in timelines for slot in line.slots for bar in slot.bars}
    hues: Hues = {size: hue for hue, size in enumerate(sorted(sizes))}
    panels, y = [], float(HEADER_H)
    for line in timelines:
        panels.append(_panel(line, y, row_h, scale, longest, hues))
        y += CAPTION_H + plan.world_size * row_h + AXIS_H + PANEL_GAP
    notes = [f"{policy}: {reason}" for policy, reason in failed]
    return {
        "width": 2 * MARGIN + GUTTER + PLOT_W,
        "height": y + 18 * len(notes) + MARGIN / 2,
        "left": MARGIN + GUTTER,
        "plot_w": PLOT_W,
        "title": f"{len(plan.lengths):,} sequences on {plan.world_size} ranks, at most {plan.max_seqlen_per_rank:,} "
        "tokens per rank",
        "subtitle": f"{sum(plan.lengths):,} tokens, the longest sequence has {max(plan.lengths):,}. Ranks down, time "
        "across, in multiples of total work / ranks.",
        "legend": list(_legend(hues)),
        "panels": panels,
        "notes": notes,
        "notes_y": y + 6,
    }


def _legend(hues: Hues) -> Any:
    x = 0
    for size, hue in hues.items():
        text = "1 rank" if size == 1 else f"{size} ranks"
        yield {"x": x, "hue": hue, "text": text}
        x += 34 + 7 * len(text)


def _panel(line: Timeline, y: float, row_h: float, scale: float, longest: float, hues: Hues) -> dict[str, Any]:
    plan = line.plan
    height = plan.world_size * row_h
    bars = [bar for slot in line.slots for bar in slot.bars]
    is_detailed = len(bars) <= MAX_BARS
    num_cuts = sum(len(bar.cuts) for bar in bars)
    step = _rank_step(plan.world_size, row_h)
    last = plan.world_size - 1
    ranks = [*range(0, plan.world_size, step), *([last] if last % step > step / 2 else [])]
    return {
        "y": y,
        "height": height,
        "name": f"policy {line.policy}",
        "caption": _caption(line),
        "tone": _tone(line),
        "memory": f"a rank holds up to {line.peak:.1f} times the tokens that it may" if line.peak > 1 else "",
        "bars": [_shape(bar, row_h, scale, hues[bar.size]) for bar in bars] if is_detailed else [],
        "areas": [] if is_detailed else _areas(bars, row_h, scale, hues),
        "weight": " hair" if row_h < 1.5 else " thin" if row_h < 5 or PLOT_W / len(line.slots) < 12 else "",
        "idle": _idle_path(bars, row_h, scale),
        "cuts": _cut_path(bars, row_h, scale) if num_cuts <= MAX_CUTS else "",
        "edges": [round(slot.start * scale, 2) for slot in line.slots[1:] if PLOT_W / len(line.slots) > 4],
        "end": round(line.end * scale, 2),
        "ideal": round(scale, 2),
        "ticks": [{"x": round(at * scale, 2), "text": f"{at:g}"} for at in _ticks(longest)],
        "ranks": [{"y": round((rank + 0.5) * row_h, 2), "text": rank} for rank in ranks],
    }


def _caption(line: Timeline) -> str:
    metrics = line.plan.metrics
    count = metrics.num_micro_batches
    filled = "" if line.peak > 1 else f", {metrics.token_fill:.0%} of the token slots filled"
    return (
        f"{count} micro-batch{'es' * (count > 1)}, imbalance {metrics.imbalance:.3f} ({line.idle:.1%} of the "
        f"ranks' time is idle), groups {metrics.mean_cp_over_min:.2f} times as wide as they must be{filled}"
    )


def _tone(line: Timeline) -> str:
    if line.peak > 1:
        return "alarm"
    return "good" if line.end <= 1.1 else "text" if line.end <= 1.3 else "alarm"


def _shape(bar: Bar, row_h: float, scale: float, hue: int) -> dict[str, Any]:
    width, height = (bar.end - bar.start) * scale, bar.size * row_h
    count = len(bar.samples)
    last = bar.first + bar.size - 1
    return {
        "x": round(bar.start * scale, 2),
        "y": round(bar.first * row_h, 2),
        "width": round(width, 2),
        "height": round(height, 2),
        "hue": hue,
        **dict(zip(("label", "label_x"), _label(bar, scale, row_h))),
        "title": f"micro-batch {bar.micro_batch}, {'ranks' if bar.size > 1 else 'rank'} {bar.first}"
        + (f" to {last}" if bar.size > 1 else "")
        + f": {count} sequence{'s' * (count > 1)}, {bar.tokens:,} tokens",
    }


def _label(bar: Bar, scale: float, row_h: float) -> tuple[str, float]:
    """What stands in a bar, and the middle of it: as much as fits beside the line of the ideal, or nothing."""
    width, middle = (bar.end - bar.start) * scale, (bar.start + bar.end) / 2 * scale
    if width < MIN_LABEL_W or bar.size * row_h < MIN_LABEL_H:
        return "", middle
    count = len(bar.samples)
    long = f"{bar.tokens:,} tok" if count == 1 else f"{count} seq, {bar.tokens:,} tok"
    short = f"{bar.tokens:,}" if count == 1 else f"{count} seq"
    for text in (long, short):
        half = 3.4 * len(text)
        for at in (middle, scale - half - 4, scale + half + 4):  # the ideal is at 1.0
            is_inside = bar.start * scale <= at - half and at + half <= bar.end * scale
            if is_inside and abs(at - scale) >= half:
                return text, round(at, 2)
    return "", middle


def _rect(x: float, y: float, width: float, height: float) -> str:
    return f"M{x:.2f} {y:.2f}h{width:.2f}v{height:.2f}h{-width:.2f}z"


def _areas(bars: Sequence[Bar], row_h: float, scale: float, hues: Hues) -> list[dict[str, Any]]:
    """Too many groups for a shape each: one path per colour."""
    paths: dict[int, list[str]] = {}
    for bar in bars:
        rect = _rect(bar.start * scale, bar.first * row_h, (bar.end - bar.start) * scale, bar.size * row_h)
        paths.setdefault(hues[bar.size], []).append(rect)
    return [{"hue": hue, "path": "".join(path)} for hue, path in sorted(paths.items())]


def _idle_path(bars: Sequence[Bar], row_h: float, scale: float) -> str:
    return "".join(
        _rect(bar.end * scale, bar.first * row_h, (bar.until - bar.end) * scale, bar.size * row_h)
        for bar in bars
        if (bar.until - bar.end) * scale >= 0.05
    )


def _cut_path(bars: Sequence[Bar], row_h: float, scale: float) -> str:
    """Lines between the sequences of a group, where they stand far enough apart to be seen; broken behind its label."""
    path = []
    for bar in bars:
        last, top, height = bar.start, bar.first * row_h, bar.size * row_h
        label, middle = _label(bar, scale, row_h)
        half = 3.4 * len(label)
        for cut in bar.cuts:
            if (cut - last) * scale >= MIN_CUT_PX and (bar.end - cut) * scale >= MIN_CUT_PX:
                line = f"v{height:.2f}"
                if abs(cut * scale - middle) < half:
                    line = f"v{height / 2 - 7:.2f}m0 14v{height / 2 - 7:.2f}" if height > 15 else ""
                path.append(f"M{cut * scale:.2f} {top:.2f}{line}")
                last = cut
    return "".join(path)


def _rank_step(world_size: int, row_h: float) -> int:
    step = 1
    while step * row_h < 13:
        step *= 2
    return min(step, world_size)


def _ticks(longest: float) -> list[float]:
    steps = (0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
    step = next((step for step in steps if longest / step <= 12), 100.0)
    return [round(step * i, 2) for i in range(int(longest / step + 1e-9) + 1)]


def _rows(line: Timeline) -> list[dict[str, Any]]:
    return [
        _row(number, slot, start)
        for number, (slot, start) in enumerate(
            zip(line.slots, accumulate((slot.end - slot.start for slot in line.slots), initial=0.0))
        )
    ]


def _row(number: int, slot: Slot, start: float) -> dict[str, Any]:
    return {
        "number": number,
        "groups": " ".join(f"{count}x{size}" for size, count in slot.sizes.items()),
        "sequences": sum(len(bar.samples) for bar in slot.bars),
        "tokens": f"{sum(bar.tokens for bar in slot.bars):,}",
        "start": f"{start:.3f}",
        "time": f"{slot.end - slot.start:.3f}",
        "idle": f"{slot.idle:.1%}",
    }
