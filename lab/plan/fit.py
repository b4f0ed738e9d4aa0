"""Fits the constants of the time model to published steps, and prints every row, the terms' ablation and the scores.

    python lab plan/fit --rows FOLDER [--judge FILE] [--leave pair] [--write] [--ablation] [--print-rows]

FOLDER holds measured_bridge.jsonl, measured_b200_simumax.jsonl and long_sequence_llama2_7b_fp8_h100.jsonl. Logarithms
of constants are fitted by damped Gauss-Newton to the logarithms of the steps' seconds, with a robust loss (soft L1) and
a pull towards the priors. `--judge`: rows of the same form that are not fitted.
`--leave`: each model, GPU or pair of them is predicted by the fit to the others. `--write` writes
src/megatron_hcp/plan/constants_fitted.py.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from later import first_rows, key_of, scored, unscored
from left_out import LEFT_OUT, left_out, left_out_scores, predicted, with_margins
from program import parser_of
from rows import Measured, bridge_rows, long_rows, simumax_rows

from megatron_hcp.plan import constants_fitted
from megatron_hcp.plan.constants import rates_for
from megatron_hcp.plan.time.step import step_time

PRIORS = {
    "gemm.bf16": 0.6, "gemm.fp8": 0.57, "gemm.mxfp8": 0.6, "gemm.nvfp4": 0.42, "gemm.half_size": 0.15,
    "bias.passes": 2.0,
    "gemm.grouped.bf16": 1.0, "gemm.grouped.fp8": 0.4, "gemm.grouped.mxfp8": 1.0, "gemm.biased": 0.7,
    "casts.nvfp4": 1.5,
    "attention.hopper": 0.65, "attention.blackwell": 0.55, "attention.graphed": 1.3, "bandwidth": 0.75,
    "tp.exposed": 0.7, "tp.overlapped": 0.3, "ep.exposed": 0.9,
    "ep.overlapped": 0.25, "dp.exposed": 0.3,
    "host.expert": 2.5e-5, "host.overlap": 0.5,
    "gpu.h100": 1.0, "gpu.b200": 0.95, "gpu.b300": 0.95, "gpu.gb200": 0.95, "gpu.gb300": 1.0,
}  # fmt: skip
"""A typical sustained rate, unless the rows say otherwise: a grouped product is a loop of plain ones, and as fast."""
FIXED = {
    "gemm.bf16.hopper": 0.65, "attention.backward": 0.85, "host.dense": 3.0e-3, "host.moe": 4.0e-3,
    "margin.scale": constants_fitted.FITTED.get("margin.scale", 1.0),
    "margin.gpu": constants_fitted.FITTED.get("margin.gpu", 1.0),
}  # fmt: skip
SPREAD, SPREAD_OF_GPUS = 0.25, 0.1
"""Standard deviation of a constant about its prior, in logarithms; GPUs are more alike in what they reach of a rate."""
NOISE = 0.06
"""The spread of identical layouts, in logarithms; larger residuals count linearly instead of quadratically."""
STEPS = 30


def residual(row: Measured, values: dict[str, float]) -> float:
    """Logarithm of predicted over measured seconds."""
    rates = rates_for(row.job, values)
    return math.log(step_time(row.model, row.layout, row.job, rates).seconds / row.seconds)


def spread_of(name: str) -> float:
    """How far that constant may lie from its prior."""
    return SPREAD_OF_GPUS if name.startswith("gpu.") else SPREAD


def weight_of(error: float) -> float:
    """Weight of soft L1 at that residual: the root of its derivative."""
    return (1 + (error / NOISE) ** 2) ** -0.25


def solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """x of matrix x = right, by elimination with pivots."""
    size = len(right)
    rows = [[*line, value] for line, value in zip(matrix, right)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda r: abs(rows[r][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for below in range(column + 1, size):
            factor = rows[below][column] / rows[column][column]
            for k in range(column, size + 1):
                rows[below][k] -= factor * rows[column][k]
    found = [0.0] * size
    for row in reversed(range(size)):
        found[row] = (rows[row][size] - sum(rows[row][k] * found[k] for k in range(row + 1, size))) / rows[row][row]
    return found


def fitted(rows: Sequence[Measured], left_out: frozenset[str] = frozenset()) -> dict[str, float]:
    """The constants that fit those rows; those in `left_out` stay at their priors."""
    names = [name for name in PRIORS if name not in left_out]
    values = {**PRIORS, **FIXED}
    damping, best = 0.01, math.inf
    for _ in range(STEPS):
        errors = [residual(row, values) for row in rows]
        slopes = []
        for name in names:
            moved = {**values, name: values[name] * 1.001}
            slopes.append([(residual(row, moved) - error) / math.log(1.001) for row, error in zip(rows, errors)])
        weights = [weight_of(error) / NOISE for error in errors]
        offsets = [math.log(values[name] / PRIORS[name]) / spread_of(name) for name in names]
        right, matrix = [], []
        for i, slope in enumerate(slopes):
            right.append(
                -sum(w * w * s * e for w, s, e in zip(weights, slope, errors)) - offsets[i] / spread_of(names[i])
            )
            matrix.append([sum(w * w * s * o for w, s, o in zip(weights, slope, other)) for other in slopes])
            matrix[i][i] = matrix[i][i] * (1 + damping) + 1 / spread_of(names[i]) ** 2
        step = solve(matrix, right)
        moved = {
            **values, **{name: values[name] * math.exp(max(-0.3, min(0.3, by))) for name, by in zip(names, step)}
        }  # fmt: skip
        loss = _loss(rows, moved)
        if loss < best:
            done = best - loss < 1e-4 * loss
            values, best, damping = moved, loss, damping / 3
            if done:
                break
        else:
            damping *= 10
            if damping > 1e6:
                break
    return values


def _loss(rows: Sequence[Measured], values: dict[str, float]) -> float:
    robust = sum(2 * ((1 + (residual(row, values) / NOISE) ** 2) ** 0.5 - 1) for row in rows)
    return robust + sum((math.log(values[name] / prior) / spread_of(name)) ** 2 for name, prior in PRIORS.items())


def scores(rows: Sequence[Measured], values: dict[str, float]) -> str:
    """Median, 90th percentile and largest relative error; rank correlation; pairs in the right order."""
    if not rows:
        return "no rows"
    signed = [math.exp(residual(row, values)) - 1 for row in rows]
    errors = sorted(map(abs, signed))
    predicted = [(1 + error) * row.seconds for error, row in zip(signed, rows)]
    measured = [row.seconds for row in rows]
    right = both = 0
    for i in range(len(rows)):
        for k in range(i):
            if abs(measured[i] / measured[k] - 1) > 0.05:
                both += 1
                right += (measured[i] > measured[k]) == (predicted[i] > predicted[k])
    text = f"{len(rows):4} rows: median {statistics.median(errors):.1%}, p90 {errors[int(0.9 * (len(errors) - 1))]:.1%}"
    return (
        f"{text}, max {errors[-1]:.1%}, Spearman {spearman(predicted, measured):.3f}, order {right / max(1, both):.1%}"
    )


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """The rank correlation."""
    if len(first) < 2:
        return 1.0
    ranks = []
    for values in (first, second):
        order = sorted(range(len(values)), key=values.__getitem__)
        rank = [0] * len(values)
        for place, index in enumerate(order):
            rank[index] = place
        ranks.append(rank)
    count = len(first)
    return 1 - 6 * sum((a - b) ** 2 for a, b in zip(*ranks)) / (count * (count**2 - 1))


def unstated(rows: Sequence[Measured]) -> list[Measured]:
    """The rows as they would be if the release were not stated."""
    return [row._replace(job=replace(row.job, versions={})) for row in rows]


def write(values: dict[str, float]) -> None:
    """The new text of constants_fitted.py."""
    lines = [f'    "{name}": {value:.4g},' for name, value in values.items()]
    head = Path(constants_fitted.__file__).read_text().split("FITTED:")[0]
    Path(constants_fitted.__file__).write_text(head + "FITTED: dict[str, float] = {\n" + "\n".join(lines) + "\n}\n")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--judge", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--ablation", action="store_true")
    parser.add_argument("--leave", choices=sorted(LEFT_OUT), action="append", help="predict each by the others' fit")
    parser.add_argument("--print-rows", action="store_true")
    words = parser.parse_args()
    bridge = list(bridge_rows(words.rows / "measured_bridge.jsonl", stated=True))
    counted = [row for row in bridge if row.group == "counted"]
    box = list(simumax_rows(words.rows / "measured_b200_simumax.jsonl"))
    long = list(long_rows(words.rows / "long_sequence_llama2_7b_fp8_h100.jsonl"))
    early = unscored([*counted, *box, *long], scored(), first_rows())
    if early:
        sys.exit(f"fit: {len(early)} rows were never scored, as {key_of(early[0])}; wanted python lab plan/later first")
    values = fitted([*counted, *box, *long])
    for name, value in values.items():
        print(f"{name:20} {value:8.4g}   prior {PRIORS.get(name, value):.4g}")
    if words.print_rows:
        for row in [*bridge, *box, *long]:
            print(f"{math.exp(residual(row, values)) - 1:+7.1%} {row.seconds:8.3f} s {row.group:8} {row.name}")
    print("counted           ", scores(counted, values))
    print("release not stated", scores(unstated(counted), values))
    print("B200, SimuMax     ", scores(box, values))
    print("B200, CP          ", scores([row for row in box if row.layout.cp > 1], values))
    print("long sequences    ", scores(long, values))
    for group in sorted({row.group for row in bridge} - {"counted"}):
        print(f"apart: {group:11}", scores([row for row in bridge if row.group == group], values))
    if words.judge:
        judged = list(bridge_rows(words.judge, stated=True))
        apart = [row for row in judged if row.group == "counted"]
        print("judged, not fitted", scores(apart, values))
        print("judged, margins   ", left_out_scores([predicted(row, values) for row in apart], values))
    for name in words.leave or ():
        print(
            f"{name} left out".ljust(18),
            left_out_scores(left_out(name, counted, [*box, *long], fitted), values, name == "gpu"),
        )
    if words.ablation:
        ablate([*counted, *box, *long], values)
    if words.write:
        write(with_margins(values, counted, [*box, *long], fitted))


ABLATED = {
    "memory-bound operations": {"bandwidth": 1e9},
    "GEMM size saturation": {"gemm.half_size": 1e-9},
    "EP all-to-all": {"ep.exposed": 1e-9},
    "exposed TP": {"tp.exposed": 1e-9},
    "exposed DP": {"dp.exposed": 1e-9},
    "host floor": dict.fromkeys(("host.dense", "host.moe", "host.expert", "host.overlap"), 0.0),
}
"""Which constants mean that a term is absent."""


def ablate(rows: Sequence[Measured], values: dict[str, float]) -> None:
    """Prints the median error without each term, the others as fitted."""
    for name, without in ABLATED.items():
        print(f"without {name:24}", scores(rows, {**values, **without}))


if __name__ == "__main__":
    main()
