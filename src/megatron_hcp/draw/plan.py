"""The picture and the page of a plan, from its JSON (`hcp.plan/1`): groups on nodes, memory, time, frontier."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from megatron_hcp.core.placement import Placement
from megatron_hcp.core.ranks import grids_of
from megatron_hcp.draw.groups import groups_image
from megatron_hcp.draw.template import fill_template
from megatron_hcp.ground.errors import HcpError

MOST_BARS = 8
MOST_RANKS = 128
"""Groups are drawn for so many ranks at most: those that the first replicas have."""
HUES, OTHERS = 12, "other parts"
SMALLEST_SHARE = 0.004
WIDTH, LEFT, BAR_H, ROW_H, LINE_H = 720, 24, 20, 58, 18
PLOT_W, PLOT_H = 340, 190
_TIME_WORDS = {
    "gemm": "matrix products", "attention": "attention", "memory_bound": "memory-bound", "tp": "TP exposed",
    "ep": "EP exposed", "cp": "CP exposed", "pp": "pipeline sends", "dp": "DP exposed", "recompute": "recomputation",
    "host": "host", "imbalance": "uneven stages", "bubble": "bubble", "optimizer": "optimizer",
}  # fmt: skip


def render_plan(data: Mapping[str, Any]) -> str:
    """The picture as SVG text: bars of memory and time of each layout, and the frontier."""
    scene = plan_scene(data)
    rows = len(scene["bars"])
    keys = {name: _placed(scene[f"{name}_words"]) for name in ("memory", "time")}
    memory_at = 96
    time_at = memory_at + 56 + rows * ROW_H + LINE_H * keys["memory"][-1]["line"]
    plot_at = time_at + 56 + rows * ROW_H + LINE_H * keys["time"][-1]["line"]
    listed = LINE_H * len(scene["points"])
    height = plot_at + (PLOT_H + 80 + listed if scene["points"] else 0) + 20
    return fill_template(
        "plan.svg.j2", width=WIDTH, height=height, left=LEFT, bar_h=BAR_H, row_h=ROW_H, memory_at=memory_at,
        time_at=time_at, plot_at=plot_at, span=WIDTH - 2 * LEFT, plot_w=PLOT_W, plot_h=PLOT_H, keys=keys, line_h=LINE_H,
        **scene,
    )  # fmt: skip


def _placed(words: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The words of a legend, each with its line and where on it; one empty one at least."""
    placed: list[dict[str, Any]] = []
    x, line = 0, 0
    for word in words or [{"text": "", "hue": 0}]:
        wide = 30 + 7 * len(word["text"])
        if x + wide > WIDTH - 2 * LEFT:
            x, line = 0, line + 1
        placed.append({**word, "x": x, "line": line})
        x += wide
    return placed


def render_plan_page(data: Mapping[str, Any]) -> str:
    """The page as HTML text, with nothing outside itself."""
    return fill_template(
        "plan.html.j2", groups=_groups(data), plot_w=PLOT_W, plot_h=PLOT_H, overrides=_overrides(data),
        scene=plan_scene(data),
    )  # fmt: skip


def plan_scene(data: Mapping[str, Any]) -> dict[str, Any]:
    """What the picture and the page show, and the bars on the page of a check."""
    job = data["job"]
    judged = [item for item in data["layouts"] if item["memory_gib"]][:MOST_BARS]
    words = {"time": _legend(judged, "time_s"), "memory": _legend(judged, "memory_gib")}
    longest = max((item["step_s"] for item in judged), default=1.0)
    largest = max((max(i["memory_gib"]["peak"], i["memory_gib"]["usable"]) for i in judged), default=1.0)
    bars = []
    for place, item in enumerate(judged, 1):
        held = item["memory_gib"]
        bars.append(
            {
                "name": f"{place}. {brief_text(item['layout'])}",
                "fits": item["fits"] is not False,
                "memory": _pieces(held["terms"], words["memory"], largest),
                "memory_text": f"{held['peak']:.1f} of {held['usable']:.1f} GiB",
                "usable": held["usable"] / largest,
                "time": _pieces(item["time_s"]["terms"], words["time"], longest),
                "time_text": f"{item['step_s']:.4g} s, {item['tflops_per_gpu']:.0f} TFLOP/s per GPU",
                "band": f"+-{item['band']:.0%}",
                "marks": item["marks"],
            }
        )
    sequences = "sequence" if job["global_batch"] == 1 else "sequences"
    return {
        "title": f"{data['model']['name'] or 'plan'} on {job['gpus']} x {job['gpu']}",
        "subtitle": f"{job['global_batch']:,} {sequences} of {job['seq_length']:,} tokens per step, "
        f"{job['precision']}, {job['gpus_per_node']} GPUs per node",
        "bars": bars,
        "memory_words": [{"text": _held(name), "hue": hue} for name, hue in words["memory"].items()],
        "time_words": [{"text": _TIME_WORDS.get(name, name), "hue": hue} for name, hue in words["time"].items()],
        "points": _points(data),
        "nothing": None if bars else _nothing(data),
        "notes": [*data["assumed"], *(f"not understood: {what}" for what in data["model"]["not_understood"])],
        "reasons": [*_reasons(data), *(_flip_text(flip) for flip in data["flips"])],
    }


def _nothing(data: Mapping[str, Any]) -> str:
    """What is said in place of the bars."""
    if data["legal"] is None:
        return f"this layout is illegal: {', '.join(data['layouts'][0]['rules'])}"
    change = f"; change: {data['remedy']['text']}" if data["remedy"] else ""
    if not data["legal"]:
        return f"no layout is legal{change}"
    return "cannot tell whether a layout fits under FSDP" if _is_open(data["least"]) else f"no layout fits{change}"


def _is_open(item: Mapping[str, Any] | None) -> bool:
    """Whether FSDP leaves open if that layout fits."""
    return item is not None and item["legal"] and item["fits"] is None


def _reasons(data: Mapping[str, Any]) -> list[str]:
    """Why there is no layout or not another one, and what to do."""
    found = [f"{brief_text(item['layout'])}: {', '.join(item['rules'])}" for item in data["layouts"] if item["rules"]]
    least, remedy, nearest = data["least"], data["remedy"], data["nearest"]
    if least:
        why = ", ".join(least["rules"])
        if least["memory_gib"]:
            why = (
                f"{least['memory_gib']['over']:.1f} GiB more than the {least['memory_gib']['usable']:.1f} GiB of a GPU"
                + ", with weights and gradients counted whole" * _is_open(least)
            )
        found.append(f"{brief_text(least['layout'])} comes nearest: {why}")
    if remedy:
        found.append(f"change: {remedy['text']}; then {brief_text(remedy['layout'])} fits")
    if nearest:
        found.append(f"{brief_text(nearest['layout'])} fits, in {nearest['step_s']:.4g} s")
    for item in data["why_not"]:
        again = " without recomputation" if item["layout"]["recompute"] == "none" and not item["rules"] else ""
        found.append(f"why not {brief_text(item['layout'])}{again}: {item['text']}")
    return found


def _held(term: str) -> str:
    """A term of the memory as a reader knows it."""
    what = term.removeprefix("kept: ")
    return term if what == term else f"activations of {what}"


def _legend(judged: list[Any], what: str) -> dict[str, int]:
    """The terms that are large enough to see anywhere, the largest first, each with its colour."""
    most: dict[str, float] = {}
    for item in judged:
        terms = item[what]["terms"]
        whole = sum(terms.values()) or 1.0
        for name, value in terms.items():
            most[name] = max(most.get(name, 0.0), value / whole)
    seen = sorted((name for name in most if most[name] > SMALLEST_SHARE), key=lambda name: -most[name])
    if len(seen) > HUES:
        seen = [*seen[: HUES - 1], OTHERS]
    return {name: place for place, name in enumerate(seen)}


def _pieces(terms: Mapping[str, float], hues: Mapping[str, int], whole: float) -> list[dict[str, Any]]:
    """Each term as a part of `whole`: where it starts, how wide it is, its colour."""
    pieces, start = [], 0.0
    terms = {**terms, OTHERS: sum(value for name, value in terms.items() if name not in hues)}
    for name, hue in hues.items():
        share = terms.get(name, 0.0) / whole
        if share > 0:
            text = f"{_TIME_WORDS.get(name, _held(name))}: {terms[name]:.3g}"
            pieces.append({"start": start, "share": share, "hue": hue, "text": text})
            start += share
    return pieces


def _points(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The frontier: time to the right, memory upwards, each from its least to its most."""
    found = data["frontier"]
    if len(found) < 2:
        return []
    times = [item["step_s"] for item in found]
    peaks = [item["peak_gib"] for item in found]
    wide, high = max(times) - min(times) or 1.0, max(peaks) - min(peaks) or 1.0
    return [
        {
            "x": (item["step_s"] - min(times)) / wide,
            "y": 1 - (item["peak_gib"] - min(peaks)) / high,
            "text": f"{item['step_s']:.4g} s, {item['peak_gib']:.0f} GiB",
            "name": brief_text(item["layout"]),
        }
        for item in found
    ]


def brief_text(layout: Mapping[str, Any]) -> str:
    """A layout's axes in use.

    >>> brief_text({"tp": 2, "cp": 4, "cp_comm_type": "a2a", "hcp_sizes": None, "mbs": 1, "recompute": "none"})
    'tp 2, cp 4 a2a'
    """
    words = [f"{axis} {layout[axis]}" for axis in ("tp", "cp", "pp", "vp", "ep", "etp") if layout.get(axis, 1) > 1]
    if layout["cp_comm_type"]:
        sizes = " {},{}".format(*layout["hcp_sizes"]) if layout["hcp_sizes"] else ""
        words[words.index(f"cp {layout['cp']}")] += f" {layout['cp_comm_type']}{sizes}"
    words += [f"mbs {layout['mbs']}"] if layout["mbs"] > 1 else []
    words += [f"recompute {layout['recompute']}"] if layout["recompute"] != "none" else []
    return ", ".join(words) or "data parallel only"


def _flip_text(flip: Mapping[str, Any]) -> str:
    more = "less" if flip["side"] == "below" else "more"
    return (
        f"close: {brief_text(flip['layout'])} is faster if {flip['link']} sustains {more} than "
        f"{flip['gb_per_s']:.3g} GB/s ({flip['now_gb_per_s']:.3g} assumed)"
    )


def _groups(data: Mapping[str, Any]) -> str | None:
    """The CP groups of the first layout on their nodes, as a picture that a page can hold; None without CP."""
    first = next((item for item in data["layouts"] if item["legal"]), None)
    if first is None or first["layout"]["cp"] == 1:
        return None
    layout, job = first["layout"], data["job"]
    replica = layout["tp"] * layout["cp"]
    node = job["gpus_per_node"]
    ranks = min(job["gpus"], max(replica, MOST_RANKS // replica * replica))
    ranks = max(size for size in range(replica, ranks + 1, replica) if job["gpus"] % size == 0 or size == replica)
    if ranks > 4 * MOST_RANKS:
        return None
    sizes = tuple(layout["hcp_sizes"] or ())
    try:
        return groups_image(
            grids_of(ranks, tp=layout["tp"], cp=layout["cp"]), sizes, Placement(ranks, node, job["domain"], "block")
        )
    except HcpError:
        return None  # more GPUs on a node than a picture has room for


def _overrides(data: Mapping[str, Any]) -> list[dict[str, str]]:
    """The first layout's overrides by framework."""
    first = next((item for item in data["layouts"] if item["overrides"]), None)
    step = f"a step has {data['job']['global_batch']} sequences, which is"
    names = {
        "bridge": "Megatron-Bridge", "mlm": "Megatron-LM", "verl": f"verl ({step} ppo_mini_batch_size x rollout.n)",
        "nemo-rl": f"NeMo-RL ({step} train_global_batch_size)",
    }  # fmt: skip
    return [
        {
            "name": names[key],
            "text": " ".join(map(shlex.quote, words)) or "none: it does not pass level sizes on (HCP010)",
        }
        for key, words in (first["overrides"] if first else {}).items()
    ]
