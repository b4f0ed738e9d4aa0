"""What `hcp dcp` prints: plans as a table, multipliers as rows; and both as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from hcp.core.dcp import Plan, usable_sizes
from hcp.core.dcp.normalize import Weights, loss_weights
from hcp.draw.timeline_rows import Timeline

MAX_ROWS = 24


def plan_json(plan: Plan) -> str:
    return _dumped(plan.as_json())


def compare_json(plans: Sequence[Plan], failed: Sequence[tuple[str, str]]) -> str:
    return _dumped(
        {
            "schema": "hcp.dcp-compare/1",
            "plans": [plan.as_json() for plan in plans],
            "failed": [{"policy": policy, "reason": reason} for policy, reason in failed],
        }
    )


def _dumped(data: dict[str, Any]) -> str:
    """JSON with a line per micro-batch: a plan of a thousand groups stays readable."""
    text = json.dumps(data)
    for mark in ('{"groups": ', '"metrics": ', '"failed": ', '{"schema": "hcp.dcp-plan/1"'):
        text = text.replace(mark, "\n" + mark)
    return text.replace(", \n", ",\n").lstrip("\n")


def plan_text(timelines: Sequence[Timeline], failed: Sequence[tuple[str, str]], groups: str) -> str:
    plan = timelines[0].plan
    sizes = " ".join(map(str, usable_sizes(plan.world_size, groups)))
    lines = [
        f"{len(plan.lengths)} sequence{'s' * (len(plan.lengths) > 1)}, {sum(plan.lengths)} tokens (the longest "
        f"{max(plan.lengths)}) on {plan.world_size} ranks of at most {plan.max_seqlen_per_rank} tokens",
        f"groups {groups}: {sizes}",
    ]
    for line in timelines:
        lines += _plan_lines(line, is_short=len(timelines) > 1)
    lines += [f"policy {policy}: no plan: {reason}" for policy, reason in failed]
    return "\n".join(lines)


def _plan_lines(line: Timeline, is_short: bool) -> list[str]:
    metrics = line.plan.metrics
    count = metrics.num_micro_batches
    lines = [
        f"policy {line.policy}: {count} micro-batch{'es' * (count > 1)}, imbalance {metrics.imbalance:.3f} "
        f"({line.idle:.1%} idle), groups {metrics.mean_cp_over_min:.2f} x the smallest that fit, at most "
        f"{line.peak:.2f} of the tokens a rank may hold" + (" (TOO MANY)" if line.peak > 1 else "")
    ]
    if is_short:
        return lines
    rows = [("mb", "time", "idle", "seqs", "tokens", "groups (count x size)")]
    for number, slot in enumerate(line.slots):
        rows.append(
            (
                str(number),
                f"{slot.end - slot.start:.3f}",
                f"{slot.idle:.1%}",
                str(sum(len(bar.samples) for bar in slot.bars)),
                str(sum(bar.tokens for bar in slot.bars)),
                " ".join(f"{count}x{size}" for size, count in slot.sizes.items()),
            )
        )
    hidden = max(0, len(rows) - 1 - MAX_ROWS)
    rows = rows[: len(rows) - hidden]
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines += ["  ".join([*(cell.rjust(width) for cell, width in zip(row, widths)), row[5]]) for row in rows]
    if hidden:
        lines.append(f"... {hidden} more micro-batches; --format json lists them")
    lines.append("time: 1 = all work / ranks; the sum of all micro-batches is the imbalance")
    return lines


class WeightRow(NamedTuple):
    """One group of a micro-batch, or several of the same size."""

    micro_batch: int
    num_groups: int
    weights: Weights


def weight_rows(
    world_size: int, micro_batches: Sequence[Sequence[int]], reduction: str, gather: str, applied: Fraction
) -> list[WeightRow]:
    """The multipliers of every group size of every micro-batch, the widest first."""
    rows = []
    for number, sizes in enumerate(micro_batches):
        weights = loss_weights(world_size, sizes, reduction=reduction, gather=gather, applied=applied)
        found = {one.local_cp_size: one for one in weights}
        rows += [WeightRow(number, sizes.count(size), found[size]) for size in sorted(found, reverse=True)]
    return rows


def weights_json(
    world_size: int, reduction: str, gather: str, applied: Fraction, rows: Sequence[WeightRow]
) -> dict[str, Any]:
    return {
        "schema": "hcp.dcp-weights/1",
        "world_size": world_size,
        "reduction": reduction,
        "gather": gather,
        "applied": float(applied),
        "groups": [
            {
                "micro_batch": row.micro_batch,
                "num_groups": row.num_groups,
                "local_cp_size": row.weights.local_cp_size,
                **{
                    name: float(getattr(row.weights, name))
                    for name in ("backward", "report_mean", "report_sum", "per_token")
                },
            }
            for row in rows
        ],
    }


def weights_text(world_size: int, reduction: str, gather: str, applied: Fraction, rows: Sequence[WeightRow]) -> str:
    table = [("mb", "groups", "backward", "report", "per token")]
    for row in rows:
        one = row.weights
        table.append(
            (
                str(row.micro_batch),
                f"{row.num_groups}x{one.local_cp_size}",
                str(one.backward),
                str(one.report_mean),
                str(one.per_token),
            )
        )
    widths = [max(len(line[i]) for line in table) for i in range(5)]
    lines = [f"{world_size} ranks, DDP {reduction}, outputs {gather}; all are factors of (loss sum of the group) / T"]
    lines += ["  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in table]
    lines += [
        "T: tokens of the whole step that carry the loss, counted on the whole batch once (no all-reduce)",
        "backward: what is differentiated"
        if applied == 1
        else f"backward: what a loss function returns as (loss, report); megatron-core multiplies that by {applied}",
        "report: a log that takes the mean over ranks, added over micro-batches",
        "per token: times R, the step's real tokens, under per-token loss; returned with this rank's share of R",
    ]
    return "\n".join(lines)
