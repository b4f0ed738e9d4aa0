"""How sequences fill packed rows: rows, padding and dropped sequences, by pack size.

Rows are filled from the longest sequence down, each into the fullest row that still has room (best fit decreasing).
Megatron-Bridge's `first_fit_decreasing` takes the first such row instead; both need at most 11/9 of the fewest rows.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from megatron_hcp.core.shards import round_up
from megatron_hcp.ground.errors import HcpError

BINS = 20
"""The number of bins for how full rows are."""
_GOOD_WASTE = 0.05


class PackPlan(NamedTuple):
    """Rows of one size. Counts are real tokens, except `padding` after sequences and `unused` at the end of rows."""

    pack_size: int
    multiple: int
    rows: int
    sequences: int
    tokens: int
    padding: int
    unused: int
    lost_sequences: int
    lost_tokens: int
    most_sequences: int
    """Of one row."""
    fullness: tuple[int, ...]
    """Rows by how full of padded sequences they are: BINS equal parts, the emptiest first."""

    @property
    def waste(self) -> float:
        """The fraction of all positions that hold no real token."""
        return (self.padding + self.unused) / (self.rows * self.pack_size) if self.rows else 0.0

    def micro_batches(self, dp: int) -> int:
        """Rows that a data-parallel rank trains on per epoch; a row is a micro-batch."""
        return -(-self.rows // dp)


def plan_rows(lengths: Iterable[int], pack_size: int, multiple: int = 1) -> PackPlan:
    """Packs sequences into rows.

    Args:
        lengths: real tokens of each sequence.
        pack_size: tokens per row.
        multiple: what each padded length is a multiple of (`shards.pad_multiple`).

    >>> plan_rows([10, 22, 30, 99], 64, 4)[:8]
    (64, 4, 2, 3, 62, 6, 60, 1)

    Raises:
        HcpError: the row isn't a multiple of `multiple`, or is shorter than one.
    """
    if pack_size < multiple or pack_size % multiple:
        fits = round_up(max(pack_size, 1), multiple)
        raise HcpError(
            f"rows of {pack_size} tokens", wanted=f"a multiple of {multiple}, like sequences", do=f"use {fits}"
        )
    real = Counter(lengths)
    fitting = {length: times for length, times in real.items() if round_up(length, multiple) <= pack_size}
    padded: Counter[int] = Counter()
    for length, times in fitting.items():
        padded[round_up(length, multiple)] += times
    held = _filled(padded, pack_size)
    tokens = sum(length * times for length, times in fitting.items())
    places = sum(length * times for length, times in padded.items())
    fullness = [0] * BINS
    for (free, _), rows in held.items():
        fullness[min(BINS - 1, (pack_size - free) * BINS // pack_size)] += rows
    rows = sum(held.values())
    return PackPlan(
        pack_size,
        multiple,
        rows,
        sum(fitting.values()),
        tokens,
        places - tokens,
        rows * pack_size - places,
        sum(real.values()) - sum(fitting.values()),
        sum(length * times for length, times in real.items()) - tokens,
        max((sequences for _, sequences in held), default=0),
        tuple(fullness),
    )


def _filled(padded: Mapping[int, int], pack_size: int) -> Counter[tuple[int, int]]:
    """Rows by (free tokens, sequences). Identical rows are kept together, so that their number doesn't matter."""
    rows: Counter[tuple[int, int]] = Counter()
    order: list[tuple[int, int]] = []  # the kinds of rows, fullest first
    for length in sorted(padded, reverse=True):
        left = padded[length]
        while left:
            at = bisect_left(order, (length, 0))
            if at == len(order):
                each = pack_size // length
                whole, rest = divmod(left, each)
                for sequences, times in ((each, whole), (rest, 1)):
                    if sequences and times:
                        _add(rows, order, (pack_size - sequences * length, sequences), times)
                break
            free, sequences = order[at]
            more = min(free // length, left)
            times = min(rows[free, sequences], left // more)
            _take(rows, order, (free, sequences), times)
            _add(rows, order, (free - more * length, sequences + more), times)
            left -= more * times
    return rows


def _add(rows: Counter[tuple[int, int]], order: list[tuple[int, int]], kind: tuple[int, int], times: int) -> None:
    if not rows[kind]:
        insort(order, kind)
    rows[kind] += times


def _take(rows: Counter[tuple[int, int]], order: list[tuple[int, int]], kind: tuple[int, int], times: int) -> None:
    rows[kind] -= times
    if not rows[kind]:
        del rows[kind]
        order.pop(bisect_left(order, kind))


def pack_sizes(longest: int, multiple: int, most: int) -> list[int]:
    """Row lengths worth comparing: the longest sequence's, and powers of two times the multiple up to `most`.

    >>> pack_sizes(3000, 8, 16384)
    [3000, 4096, 8192, 16384]
    """
    least = round_up(longest, multiple)
    powers = [multiple << power for power in range(40) if least < multiple << power <= most]
    round_ones = [size for size in (1 << power for power in range(40)) if least < size <= most and size % multiple == 0]
    return [least, *(round_ones or powers)]


def best_of(plans: Iterable[PackPlan]) -> PackPlan:
    """The shortest rows that drop nothing and waste little; if none do, those that drop and waste the least."""
    found = sorted(plans, key=lambda plan: (plan.lost_tokens, plan.waste > _GOOD_WASTE, plan.pack_size))
    good = found[0]
    if good.waste <= _GOOD_WASTE:
        return good
    return min(found, key=lambda plan: (plan.lost_tokens, plan.waste, plan.pack_size))
