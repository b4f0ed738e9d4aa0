"""A plan described in words, which the terminal, the pictures and the pages share."""

from __future__ import annotations

from megatron_hcp.draw.timeline_rows import Timeline


def seconds(value: float) -> str:
    """A time with three significant digits, in s, ms or us.

    >>> seconds(1234.5), seconds(12.0), seconds(0.5), seconds(0.01234), seconds(0.0000012), seconds(0.0)
    ('1234 s', '12.0 s', '500 ms', '12.3 ms', '1.20 us', '0 s')
    """
    if value <= 0:
        return "0 s"
    unit, name = next(((unit, name) for unit, name in _UNITS if value >= unit), _UNITS[-1])
    digits = f"{value / unit:.0f}" if value / unit >= 1000 else f"{value / unit:#.3g}"
    return f"{digits.rstrip('.')} {name}"


_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def caption(line: Timeline, first: Timeline | None = None) -> tuple[str, str]:
    """Two lines: how good the plan is, compared with the first one if there are several; and where its time goes."""
    metrics = line.plan.metrics
    count = metrics.num_micro_batches
    ratio = ""
    if first is not None and first is not line and first.plan.metrics.estimated_s:
        ratio = f" ({time_ratio(line, first):.2f} times that of {first.policy})"
    # Plans made by time have no price to report: there, it only breaks ties.
    price = f"; groups wider than needed cost {line.price:.1%} of the work" if has_price(line) else ""
    filled = "" if line.peak > 1 else f", {metrics.token_fill:.0%} of token slots filled"
    return (
        f"{seconds(metrics.estimated_s)} estimated{ratio}, imbalance {metrics.imbalance:.3f}, groups "
        f"{metrics.mean_cp_over_min:.2f} times as wide as needed, {count} micro-batch{'es' * (count > 1)}",
        f"ranks are idle {line.idle:.1%} of the time and communicate {line.sent:.1%} of it{price}{filled}"
        + (f"; pipeline bubble {seconds(line.bubble)}" if line.bubble else ""),
    )


def has_price(line: Timeline) -> bool:
    """Whether the plan was made with a price for wide groups instead of by time."""
    return not line.plan.setup.cost.by_time


def time_ratio(line: Timeline, first: Timeline) -> float:
    """This plan's time as a multiple of the first plan's."""
    return line.plan.metrics.estimated_s / first.plan.metrics.estimated_s
