"""As many micro-batches as virtual pipeline stages need: a multiple, reached by splitting some of a plan's in two."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from megatron_hcp.dcp.plan import Group, MicroBatch
from megatron_hcp.ground.errors import HcpError

Fits = Callable[[Sequence[int], int], bool]
"""Whether these samples fit on a group of this size."""


def split_to_multiple(
    micro_batches: Sequence[MicroBatch], multiple: int, lengths: Sequence[int], sizes: Sequence[int], fits: Fits
) -> tuple[MicroBatch, ...]:
    """The same groups in a multiple of `multiple` micro-batches (microbatch_group_size_per_vp_stage).

    A micro-batch is split between its groups, and each half gets groups twice as wide, or one of all ranks; time stays
    about the same, but sequences are spread wider. So those with the smallest tokens x ranks are split first.

    Raises:
        HcpError: the sequences don't suffice for that many micro-batches.
    """
    batches = list(micro_batches)
    while len(batches) % multiple:
        spread = {
            index: sum(group.local_cp_size * lengths[sample] for group in batch.groups for sample in group.samples)
            for index, batch in enumerate(batches)
        }
        for index in sorted(spread, key=spread.__getitem__):
            halves = _halved(batches[index], lengths, sizes, fits)
            if halves:
                batches[index : index + 1] = halves
                break
        else:
            raise HcpError(
                f"microbatch_group_size_per_vp_stage: found {multiple}, but {len(lengths)} sequences in {len(batches)} "
                "micro-batches cannot be split into a multiple of it",
                do="use more sequences per step",
            )
    return tuple(batches)


def _halved(
    batch: MicroBatch, lengths: Sequence[int], sizes: Sequence[int], fits: Fits
) -> tuple[MicroBatch, MicroBatch] | None:
    """Two micro-batches that each cover all ranks, or None if the samples don't fit or there is only one."""
    world_size = sum(group.local_cp_size for group in batch.groups)
    return _between_groups(batch, world_size, sizes, fits) or _on_all_ranks(batch, world_size, lengths, fits)


def _between_groups(
    batch: MicroBatch, world_size: int, sizes: Sequence[int], fits: Fits
) -> tuple[MicroBatch, MicroBatch] | None:
    """The groups of either half of the ranks, doubled; they stay aligned, since start and size both double."""
    halves: list[list[Group]] = [[], []]
    for group in batch.groups:
        size = 2 * group.local_cp_size
        half = int(2 * group.start >= world_size)
        start = 2 * group.start - half * world_size
        if start + size > world_size or size not in sizes or not fits(group.samples, size):
            return None
        halves[half].append(Group(start, size, group.samples))
    return MicroBatch(tuple(halves[0])), MicroBatch(tuple(halves[1]))


def _on_all_ranks(
    batch: MicroBatch, world_size: int, lengths: Sequence[int], fits: Fits
) -> tuple[MicroBatch, MicroBatch] | None:
    """The samples, longest first, assigned to two groups of all ranks, each to the one with fewer tokens."""
    parts: tuple[list[int], list[int]] = ([], [])
    samples = [sample for group in batch.groups for sample in group.samples]
    for sample in sorted(samples, key=lengths.__getitem__, reverse=True):
        min(parts, key=lambda part: sum(lengths[own] for own in part)).append(sample)
    if not parts[1] or not all(fits(part, world_size) for part in parts):
        return None
    first, second = (MicroBatch((Group(0, world_size, tuple(sorted(part))),)) for part in parts)
    return first, second
