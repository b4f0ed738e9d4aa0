"""The output of `hcp dcp weights`: multipliers of the loss, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from megatron_hcp.dcp.normalize import Weights, loss_weights


class WeightRow(NamedTuple):
    """One group of a micro-batch, or several groups of the same size."""

    micro_batch: int
    num_groups: int
    weights: Weights


def weight_rows(
    world_size: int, micro_batches: Sequence[Sequence[int]], reduction: str, gather: str, applied: Fraction
) -> list[WeightRow]:
    """The multipliers for every group size of every micro-batch, widest first."""
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
    lines = [f"{world_size} ranks, DDP {reduction}, outputs {gather}; all factors apply to (loss sum of the group) / T"]
    lines += ["  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in table]
    lines += [
        "T: loss tokens of the whole step, counted once on the whole batch (no all-reduce)",
        "backward: the factor for the loss that is differentiated"
        if applied == 1
        else "backward: the factor for the loss that a loss function returns in (loss, report); "
        f"megatron-core multiplies it by {applied}",
        "report: the factor for a log that is averaged over ranks and summed over micro-batches",
        "per token: under per-token loss, multiply by R, the step's real tokens; return it with this rank's share of R",
    ]
    return "\n".join(lines)
