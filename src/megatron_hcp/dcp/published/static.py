"""Static context parallelism with packing: Megatron-LM's `dp_balanced` scheduler, in the order of the data."""

from __future__ import annotations

from collections.abc import Sequence

from megatron_hcp.dcp.published.open_group import Batches
from megatron_hcp.ground.errors import HcpError


def dp_balanced(lengths: Sequence[int], world_size: int, max_seqlen: int, cp_size: int) -> Batches:
    """The plan of `DpBalancedScheduler`: every group has `cp_size` ranks and packs up to cp_size * M tokens.

    Sequences are packed in order. If the number of packs isn't a multiple of the groups, the last sequences of the last
    packs become separate packs.

    Raises HcpError if cp_size doesn't divide W, if a sequence is longer than cp_size * M (upstream doesn't check), and
    if there are too few sequences to give every group one in every micro-batch. Source: Megatron-LM dev and main,
    megatron/core/datasets/data_schedule.py, DpBalancedScheduler.

    >>> dp_balanced([500, 500, 900, 100], 4, 512, 2)
    [[(2, [0, 1]), (2, [2, 3])]]
    """
    if not 1 <= cp_size <= world_size or world_size % cp_size:
        raise HcpError(
            f"policy static:{cp_size}: {world_size} ranks have no groups of {cp_size}",
            do=f"give a divisor of {world_size}",
        )
    capacity = cp_size * max_seqlen
    worst = max(range(len(lengths)), key=lengths.__getitem__)
    if lengths[worst] > capacity:
        raise HcpError(
            f"policy static:{cp_size}: sequence {worst} has {lengths[worst]} tokens, more than {cp_size} ranks of at "
            f"most {max_seqlen} tokens",
            do=f"give at least static:{-(-lengths[worst] // max_seqlen)}",
        )
    packs: list[list[int]] = []
    room = 0
    for i, length in enumerate(lengths):
        if length > room:
            packs.append([])
            room = capacity
        packs[-1].append(i)
        room -= length
    num_groups = world_size // cp_size
    if -(-len(packs) // num_groups) * num_groups > len(lengths):
        raise HcpError(
            f"policy static:{cp_size}: {len(lengths)} sequences cannot give each of {num_groups} groups one in every "
            "micro-batch",
            do="give more sequences, or a larger C",
        )
    last = len(packs) - 1
    while len(packs) % num_groups:
        if len(packs[last]) > 1:
            packs.append([packs[last].pop()])
        else:
            last -= 1
    return [
        [(cp_size, samples) for samples in packs[start : start + num_groups]]
        for start in range(0, len(packs), num_groups)
    ]
