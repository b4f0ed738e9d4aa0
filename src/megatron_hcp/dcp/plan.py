"""A plan: which sequences run in which micro-batch, on which ranks; and its metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from megatron_hcp.dcp.cost import GroupTime
from megatron_hcp.dcp.setup import Setup


class Group(NamedTuple):
    """Ranks start, ..., start + local_cp_size - 1 of DPxCP, and the sequences that they share, by index."""

    start: int
    local_cp_size: int
    samples: tuple[int, ...]

    @property
    def ranks(self) -> range:
        return range(self.start, self.start + self.local_cp_size)


class MicroBatch(NamedTuple):
    """Groups that run side by side, by rank; together they cover all ranks."""

    groups: tuple[Group, ...]


class Metrics(NamedTuple):
    """A plan's metrics. `imbalance` alone is meaningless: putting all sequences on all ranks gives 1.0."""

    imbalance: float
    """Sum over micro-batches of the work of the slowest rank, over total work / W: 1.0 is perfect."""
    mean_cp_over_min: float
    """Token-weighted mean group size, relative to the smallest usable size for each sequence: 1.0 is the minimum."""
    num_micro_batches: int
    token_fill: float
    """Padded tokens over the token slots of all ranks and micro-batches (W * M each)."""
    lower_bound: float
    """Total work / W, in units of the cost model: a lower bound. The plan's own time is imbalance times this."""
    estimated_s: float
    """Seconds of the step's forward and backward passes: each micro-batch takes as long as its slowest group, with the
    communication that attention doesn't hide, plus the pipeline bubble, (pp - 1) / vpp times the slowest micro-batch.
    Reduction of gradients and the optimizer are not included."""


class Plan(NamedTuple):
    """The complete plan: `lengths` are the sequences as given, which `samples` index."""

    policy: str
    world_size: int
    max_seqlen_per_rank: int
    lengths: tuple[int, ...]
    micro_batches: tuple[MicroBatch, ...]
    metrics: Metrics
    setup: Setup = Setup()


def padded_length(length: int, local_cp_size: int, align: int = 1) -> int:
    """Tokens of one sequence after padding, over all ranks of its group: a multiple of align * C, twice that for C > 1.

    `align` is tp_size with sequence parallelism, else 1. The 2 is the zigzag order's: each rank holds two chunks.
    Source: verl/utils/dynamic_cp_scheduler.py, _local_padding_mask.

    >>> padded_length(1001, 4), padded_length(1001, 1)
    (1008, 1001)
    """
    multiple = align if local_cp_size == 1 else 2 * align * local_cp_size
    return -(-length // multiple) * multiple


def smallest_size(length: int, sizes: Sequence[int], max_seqlen: int, align: int = 1) -> int | None:
    """The smallest of the sizes on which the padded sequence has at most max_seqlen tokens per rank, or None.

    >>> smallest_size(5000, (1, 2, 4, 8), 1024)
    8
    """
    return next((size for size in sizes if padded_length(length, size, align) <= size * max_seqlen), None)


def measure(
    micro_batches: Sequence[MicroBatch], lengths: Sequence[int], world_size: int, max_seqlen: int,
    setup: Setup,
) -> Metrics:  # fmt: skip
    """The metrics of any assignment of the sequences to groups, including those of other schedulers."""
    cost, sizes, unit_s = setup.cost, setup.sizes(world_size), setup.cost.machine.unit_s
    work = list(map(cost.work, lengths))
    total = sum(work)
    time, spread, padded = 0.0, 0, 0
    seconds: list[float] = []
    for batch in micro_batches:
        tallest = slowest = 0.0
        for group in batch.groups:
            size = group.local_cp_size
            height = sum([work[i] for i in group.samples]) / size
            tallest = max(tallest, height)
            exposed = group_time(group, lengths, setup).exposed_s if size > 1 else 0.0
            slowest = max(slowest, height * unit_s + exposed)
            spread += size * sum([lengths[i] for i in group.samples])
            multiple = setup.multiple(size)
            padded += multiple * sum([-(-lengths[i] // multiple) for i in group.samples])
        time += tallest
        seconds.append(slowest + cost.machine.micro_batch_s)
    least = sum([length * size for length, size in zip(lengths, least_sizes(lengths, sizes, max_seqlen, setup))])
    return Metrics(
        imbalance=time * world_size / total if total else 1.0,
        mean_cp_over_min=spread / least if least else 1.0,
        num_micro_batches=len(micro_batches),
        token_fill=padded / (len(micro_batches) * world_size * max_seqlen),
        lower_bound=total / world_size,
        estimated_s=sum(seconds) + (setup.pp - 1) / setup.vpp * max(seconds, default=0.0),
    )


def least_sizes(lengths: Sequence[int], sizes: Sequence[int], max_seqlen: int, setup: Setup) -> list[int]:
    """For each sequence the smallest of the sizes that holds it; the largest if none does."""
    longest = [size * setup.tokens(size, max_seqlen) // setup.multiple(size) * setup.multiple(size) for size in sizes]
    most = list(accumulate(longest, max))
    return [sizes[min(bisect_left(most, length), len(sizes) - 1)] for length in lengths]


def group_time(group: Group, lengths: Sequence[int], setup: Setup) -> GroupTime:
    """Seconds of a group: its work, and the communication that attention doesn't hide."""
    size = group.local_cp_size
    return setup.cost.group_time(size, [lengths[i] for i in group.samples], setup.crosses(group.start, size))
