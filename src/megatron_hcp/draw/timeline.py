"""The picture of dynamic-CP plans: ranks down, time across, one panel per plan on one scale, as SVG or as a page.

Colour shows how many ranks share a sequence; dots are exposed communication, and hatched red is idle time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import ceil, log10
from typing import Any

from megatron_hcp.draw.template import fill_template
from megatron_hcp.draw.timeline_rows import Bar, Slot, Timeline
from megatron_hcp.draw.timeline_words import caption, seconds
from megatron_hcp.ground.errors import HcpError

MARGIN, GUTTER, PLOT_W = 28, 56, 1040
HEADER_H, CAPTION_H, AXIS_H, PANEL_GAP = 104, 62, 34, 20
MAX_RANKS, MAX_BARS, MAX_CUTS, MAX_HUES = 2048, 6000, 20000, 13
Hues = dict[int, int]
"""The colour of each group size: the template has one for every power of two up to MAX_RANKS, and one more."""
MIN_CUT_PX, MIN_LABEL_H, LETTER_W = 3.0, 13, 3.4
MOST_TICKS = 12
BUBBLE_LABEL_W = 110


def render_timelines(timelines: Sequence[Timeline], failed: Sequence[tuple[str, str]] = ()) -> str:
    """The picture as SVG text. `failed` are (policy, reason) of plans that could not be made.

    Raises:
        HcpError: more ranks than a picture has rows for.
    """
    return fill_template("dcp.svg.j2", **_values(timelines, failed))


def render_page(timelines: Sequence[Timeline], failed: Sequence[tuple[str, str]] = ()) -> str:
    """The picture in an HTML page, with a table of every plan's micro-batches. One file, no script, no network."""
    values = _values(timelines, failed)
    plans = [{"policy": line.policy, "caption": caption(line), "rows": _rows(line)} for line in timelines]
    return fill_template("dcp.html.j2", svg=fill_template("dcp.svg.j2", **values), plans=plans, **values)


def _values(timelines: Sequence[Timeline], failed: Sequence[tuple[str, str]]) -> dict[str, Any]:
    plan = timelines[0].plan
    if plan.world_size > MAX_RANKS:
        raise HcpError(
            f"world_size {plan.world_size}: a picture has room for {MAX_RANKS} ranks", do="plan without a picture"
        )
    longest = max(line.end + line.bubble for line in timelines)
    row_h = min(26.0, max(0.6, 520 / plan.world_size / (1 if len(timelines) == 1 else 1.5)))
    scale = PLOT_W / longest
    hues = _hues({bar.size for line in timelines for slot in line.slots for bar in slot.bars})
    panels, y = [], float(HEADER_H)
    for line in timelines:
        panels.append(_panel(line, timelines[0], y, row_h, scale, longest, hues))
        y += CAPTION_H + plan.world_size * row_h + AXIS_H + PANEL_GAP
    notes = [f"{policy}: {reason}" for policy, reason in failed]
    return {
        "width": 2 * MARGIN + GUTTER + PLOT_W,
        "height": y + 18 * len(notes) + MARGIN / 2,
        "left": MARGIN + GUTTER,
        "plot_w": PLOT_W,
        "title": f"{len(plan.lengths):,} sequences on {plan.world_size} ranks, at most {plan.max_seqlen_per_rank:,} "
        "tokens per rank",
        "subtitle": f"{sum(plan.lengths):,} tokens, {max(plan.lengths):,} in the longest sequence. Ranks down, "
        f"estimated time across: {plan.setup.cost.machine.basis}.",
        "legend": list(_legend(hues)),
        "panels": panels,
        "notes": notes,
        "notes_y": y + 6,
    }


def _hues(sizes: set[int]) -> Hues:
    """A colour for each size; if there are more sizes than colours, neighbouring sizes share one."""
    each = max(1.0, len(sizes) / MAX_HUES)
    return {size: int(number / each) for number, size in enumerate(sorted(sizes))}


def _legend(hues: Hues) -> Any:
    x = 0.0
    for hue in sorted(set(hues.values())):
        sizes = [size for size, own in hues.items() if own == hue]
        text = f"{sizes[0]}-{sizes[-1]}" if len(sizes) > 1 else str(sizes[0])
        yield {"x": x, "hue": hue, "text": text}
        x += 34 + 7.5 * len(text)


def _panel(
    line: Timeline, first: Timeline, y: float, row_h: float, scale: float, longest: float, hues: Hues
) -> dict[str, Any]:
    plan = line.plan
    height = plan.world_size * row_h
    bars = [bar for slot in line.slots for bar in slot.bars]
    is_detailed = len(bars) <= MAX_BARS
    num_cuts = sum(len(bar.cuts) for bar in bars)
    step = _rank_step(plan.world_size, row_h)
    last = plan.world_size - 1
    ranks = [*range(0, plan.world_size, step), *([last] if last % step > step / 2 else [])]
    head, tail = caption(line, first)
    return {
        "y": y,
        "height": height,
        "name": f"policy {line.policy}",
        "head": head,
        "tail": tail,
        "tone": _tone(line, first),
        "problems": "; ".join(line.problems),
        "bars": [_shape(bar, line, row_h, scale, hues[bar.size]) for bar in bars] if is_detailed else [],
        "areas": [] if is_detailed else _areas(bars, row_h, scale, hues),
        "weight": " hair" if row_h < 1.5 else " thin" if row_h < 5 or PLOT_W / len(line.slots) < 12 else "",
        "sent": _path(bars, row_h, scale, "worked", "end"),
        "idle": _path(bars, row_h, scale, "end", "until")
        + (_rect(line.end * scale, 0, line.bubble * scale, height) if line.bubble * scale >= 0.05 else ""),
        "cuts": _cut_path(bars, line, row_h, scale) if num_cuts <= MAX_CUTS else "",
        "bubble": round((line.end + line.bubble / 2) * scale, 2) if line.bubble * scale > BUBBLE_LABEL_W else 0,
        "edges": [round(slot.start * scale, 2) for slot in line.slots[1:] if PLOT_W / len(line.slots) > 4],
        "end": round((line.end + line.bubble) * scale, 2),
        "ideal": round(line.ideal * scale, 2),
        "ticks": [{"x": round(at * scale, 2), "text": f"{at:g} s"} for at in _ticks(longest)],
        "ranks": [{"y": round((rank + 0.5) * row_h, 2), "text": rank} for rank in ranks],
    }


def _tone(line: Timeline, first: Timeline) -> str:
    if line.problems:
        return "alarm"
    return "good" if line.plan.metrics.estimated_s <= first.plan.metrics.estimated_s else "text"


def _shape(bar: Bar, line: Timeline, row_h: float, scale: float, hue: int) -> dict[str, Any]:
    width, height = (bar.worked - bar.start) * scale, bar.size * row_h
    count = len(bar.samples)
    last = bar.first + bar.size - 1
    label, middle = _label(bar, line, scale, row_h)
    return {
        "x": round(bar.start * scale, 2),
        "y": round(bar.first * row_h, 2),
        "width": round(width, 2),
        "height": round(height, 2),
        "hue": hue,
        "label": label,
        "label_x": middle,
        "title": f"micro-batch {bar.micro_batch}, {'ranks' if bar.size > 1 else 'rank'} {bar.first}"
        + (f" to {last}" if bar.size > 1 else "")
        + f": {count} sequence{'s' * (count > 1)}, {bar.tokens:,} tokens, {seconds(bar.worked - bar.start)} of work, "
        + f"{seconds(bar.end - bar.worked)} of exposed communication",
    }


def _label(bar: Bar, line: Timeline, scale: float, row_h: float) -> tuple[str, float]:
    """A bar's label and its centre: as much text as fits beside the ideal line, or nothing."""
    middle = (bar.start + bar.worked) / 2 * scale
    if bar.size * row_h < MIN_LABEL_H:
        return "", middle
    count, ideal = len(bar.samples), line.ideal * scale
    whole = f"CP {bar.size}: {count} seq, {bar.tokens:,} tok"
    for text in (whole, f"CP {bar.size}: {count} seq", f"CP {bar.size}", str(bar.size)):
        half = LETTER_W * len(text)
        for at in (middle, ideal - half - 4, ideal + half + 4):
            is_inside = bar.start * scale <= at - half and at + half <= bar.worked * scale
            if is_inside and abs(at - ideal) >= half:
                return text, round(at, 2)
    return "", middle


def _rect(x: float, y: float, width: float, height: float) -> str:
    return f"M{x:.2f} {y:.2f}h{width:.2f}v{height:.2f}h{-width:.2f}z"


def _areas(bars: Sequence[Bar], row_h: float, scale: float, hues: Hues) -> list[dict[str, Any]]:
    """One path per colour, for when there are too many groups to draw one shape each."""
    paths: dict[int, list[str]] = {}
    for bar in bars:
        rect = _rect(bar.start * scale, bar.first * row_h, (bar.worked - bar.start) * scale, bar.size * row_h)
        paths.setdefault(hues[bar.size], []).append(rect)
    return [{"hue": hue, "path": "".join(path)} for hue, path in sorted(paths.items())]


def _path(bars: Sequence[Bar], row_h: float, scale: float, start: str, end: str) -> str:
    """The part of each bar between two of its times, if wide enough to be seen."""
    spans = ((bar, getattr(bar, start) * scale, getattr(bar, end) * scale) for bar in bars)
    return "".join(_rect(a, bar.first * row_h, b - a, bar.size * row_h) for bar, a, b in spans if b - a >= 0.05)


def _cut_path(bars: Sequence[Bar], line: Timeline, row_h: float, scale: float) -> str:
    """Lines between a group's sequences, if far enough apart to be seen, with a gap behind the label."""
    path = []
    for bar in bars:
        last, top, height = bar.start, bar.first * row_h, bar.size * row_h
        label, middle = _label(bar, line, scale, row_h)
        half = LETTER_W * len(label)
        for cut in bar.cuts:
            if (cut - last) * scale >= MIN_CUT_PX and (bar.worked - cut) * scale >= MIN_CUT_PX:
                drawn = f"v{height:.2f}"
                if abs(cut * scale - middle) < half:
                    drawn = f"v{height / 2 - 7:.2f}m0 14v{height / 2 - 7:.2f}" if height > 15 else ""
                path.append(f"M{cut * scale:.2f} {top:.2f}{drawn}")
                last = cut
    return "".join(path)


def _rank_step(world_size: int, row_h: float) -> int:
    step = 1
    while step * row_h < 13:
        step *= 2
    return min(step, world_size)


def _ticks(longest: float) -> list[float]:
    """Round times up to the longest: multiples of 1, 2 or 5 times a power of ten.

    >>> _ticks(3.4)
    [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    """
    power = ceil(log10(longest / MOST_TICKS)) - 1
    step = next(one * 10.0**power for one in (1, 2, 5, 10, 20) if longest / (one * 10.0**power) <= MOST_TICKS)
    return [round(step * i, max(0, 1 - power)) for i in range(int(longest / step + 1e-9) + 1)]


def _rows(line: Timeline) -> list[dict[str, Any]]:
    starts = accumulate((slot.end - slot.start for slot in line.slots), initial=0.0)
    return [_row(number, slot, start) for number, (slot, start) in enumerate(zip(line.slots, starts))]


def _row(number: int, slot: Slot, start: float) -> dict[str, Any]:
    return {
        "number": number,
        "groups": " ".join(f"{count}x{size}" for size, count in slot.sizes.items()),
        "sequences": sum(len(bar.samples) for bar in slot.bars),
        "tokens": f"{sum(bar.tokens for bar in slot.bars):,}",
        "start": seconds(start),
        "time": seconds(slot.end - slot.start),
        "sent": seconds(max(bar.end - bar.worked for bar in slot.bars)),
        "idle": f"{slot.idle:.1%}",
    }
