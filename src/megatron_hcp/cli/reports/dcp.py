"""The output of `hcp dcp plan` and `hcp dcp show`: plans as a table, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from megatron_hcp import __version__
from megatron_hcp.dcp import Plan, usable_sizes
from megatron_hcp.dcp.plan_json import given_json, plan_json, planned_json
from megatron_hcp.dcp.published import NO_PACKING
from megatron_hcp.draw.timeline_rows import Timeline
from megatron_hcp.draw.timeline_words import caption, has_price, seconds, time_ratio

MAX_ROWS = 24
MAX_SIZES = 16
Failed = Sequence[tuple[str, str]]
"""(policy, reason) of plans that could not be made."""


def plan_dump(plan: Plan) -> str:
    """hcp.dcp-plan/2."""
    return _dumped(plan_json(plan))


def compare_dump(lines: Sequence[Timeline], failed: Failed, note: str) -> str:
    """hcp.dcp-compare/2: first what the plans share, then each plan; `time_ratio` is relative to the first's time."""
    return _dumped(
        {
            "schema": "hcp.dcp-compare/2",
            "hcp": __version__,
            "note": note or None,
            **given_json(lines[0].plan),
            "plans": [
                {
                    "policy": line.policy,
                    **planned_json(line.plan),
                    "time_ratio": time_ratio(line, lines[0]),
                    "peak": line.peak,
                    "problems": list(line.problems),
                }
                for line in lines
            ],
            "failed": [{"policy": policy, "reason": reason} for policy, reason in failed],
        }
    )


def _dumped(data: dict[str, Any]) -> str:
    """JSON with one line per micro-batch, so that a plan with a thousand groups stays readable."""
    text = json.dumps(data)
    for mark in (
        '{"groups": ',
        '"cost": ',
        '"lengths": ',
        '"micro_batches": ',
        '"metrics": ',
        '"failed": ',
        '{"policy"',
    ):
        text = text.replace(mark, "\n" + mark)
    return text.replace(", \n", ",\n").lstrip("\n")


def plan_lines(lines: Sequence[Timeline], failed: Failed = (), note: str = "") -> list[str]:
    """One plan with its micro-batches, or a table of several plans, compared with the first."""
    plan = lines[0].plan
    sizes = usable_sizes(plan.world_size, plan.setup.groups)
    shown = " ".join(map(str, sizes)) if len(sizes) <= MAX_SIZES else f"{sizes[0]} to {sizes[-1]}"
    count = len(plan.lengths)
    head = [
        f"{count} sequence{'s' * (count > 1)}, {sum(plan.lengths)} tokens (longest {max(plan.lengths)}) on "
        f"{plan.world_size} ranks, at most {plan.max_seqlen_per_rank} tokens per rank",
        *([f"lengths: {note}"] if note else []),
        f"groups {plan.setup.groups}: {shown}",
        f"times: {plan.setup.cost.machine.basis}",
    ]
    body = _one_plan(lines[0]) if len(lines) == 1 and not failed else _table(lines)
    tail = [f"policy {line.policy}: {problem}" for line in lines for problem in line.problems]
    return [*head, *body, *tail, *(f"policy {policy}: no plan: {reason}" for policy, reason in failed)]


def _one_plan(line: Timeline) -> list[str]:
    rows = [("mb", "time", "exposed", "idle", "seqs", "tokens", "groups (count x size)")]
    for number, slot in enumerate(line.slots):
        rows.append(
            (
                str(number),
                seconds(slot.end - slot.start),
                seconds(max(bar.end - bar.worked for bar in slot.bars)),
                f"{slot.idle:.1%}",
                str(sum(len(bar.samples) for bar in slot.bars)),
                str(sum(bar.tokens for bar in slot.bars)),
                " ".join(f"{count}x{size}" for size, count in slot.sizes.items()),
            )
        )
    hidden = max(0, len(rows) - 1 - MAX_ROWS)
    lines = [f"policy {line.policy}: {caption(line)[0]}", caption(line)[1]]
    lines += _aligned(rows[: len(rows) - hidden])
    if hidden:
        lines.append(f"... {hidden} more micro-batches; --format json lists them")
    return lines


def _table(lines: Sequence[Timeline]) -> list[str]:
    first, priced = lines[0], has_price(lines[0])
    rows = [
        ("policy", "time", "time ratio", "imbalance", "op", "micro-batches", "idle", "exposed",
         *(["price"] if priced else []), "fill", ""),
        *(_row(line, first, priced) for line in lines),
    ]  # fmt: skip
    price = "price: cost of groups wider than needed, as a share of the work; " if priced else ""
    return [
        *_aligned(rows),
        f"time: estimated, forward and backward; time ratio: relative to {first.policy}; "
        "op: mean group size over the smallest that fits",
        f"exposed: communication not hidden, as a share of rank time; {price}fill: peak tokens per rank over the limit",
    ]


def _row(line: Timeline, first: Timeline, priced: bool) -> tuple[str, ...]:
    metrics = line.plan.metrics
    return (
        line.policy,
        seconds(metrics.estimated_s),
        "" if line is first else f"{time_ratio(line, first):.2f}x",
        f"{metrics.imbalance:.3f}",
        f"{metrics.mean_cp_over_min:.2f}",
        str(metrics.num_micro_batches),
        f"{line.idle:.1%}",
        f"{line.sent:.1%}",
        *([f"{line.price:.1%}"] if priced else []),
        f"{line.peak:.3f}",
        "OVER LIMIT" if line.peak > 1 else "one sequence per pass" if line.policy in NO_PACKING else "",
    )


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Columns aligned right, except the last, which is aligned left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    return ["  ".join([*(cell.rjust(width) for cell, width in zip(row, widths)), row[-1]]).rstrip() for row in rows]
