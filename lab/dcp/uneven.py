"""Where dynamic CP's own schedulers fail on W ranks: `python lab dcp/uneven --megatron DIR [--batches N]`.

DIR is a checkout of Megatron-LM's dev branch. dev's real `DefaultDynamicCPScheduler`, which verl uses too, and
`BalancedCPScheduler` of the same checkout get batches whose every sequence fits on W ranks; counted are those that
they refuse, break on, or give a group that `create_dynamic_dp_cp_groups` makes no process group for.
"""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from dev import import_dev
from program import parser_of

MAX_SEQLEN, WORLD_SIZES = 8192, (4, 6, 8, 10, 12, 16, 20, 24, 32)


class Place:
    """The DPxCP group, of which only the size is used."""

    def __init__(self, size: int) -> None:
        self._size = size

    def size(self) -> int:
        return self._size


def batch(world_size: int, number: int) -> list[tuple[int, int]]:
    """64 or 256 sequences of a reinforcement-learning step, at most as long as the largest power of two in W holds."""
    chance = random.Random(f"{world_size}/{number}")
    longest = MAX_SEQLEN << (world_size.bit_length() - 1)
    count = chance.choice((64, 256))
    return [(i, min(longest, int(chance.uniform(100, 1000) + chance.lognormvariate(8.3, 1)))) for i in range(count)]


def outcome(schedule: Callable[[list[tuple[int, int]]], Any], pairs: list[tuple[int, int]], world_size: int) -> str:
    groups = {2**power for power in range(int(math.log2(world_size)))} | {world_size}
    try:
        micro_batches = schedule(pairs)
    except (AssertionError, IndexError) as error:
        return type(error).__name__
    sizes = {sum(sample in other for other in ranks) for ranks in micro_batches for own in ranks for sample in own}
    return "no such group" if sizes - groups else "ok"


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--megatron", required=True, metavar="DIR", help="a checkout of Megatron-LM's dev branch")
    parser.add_argument("--batches", type=int, default=50)
    options = parser.parse_args()
    import_dev(options.megatron)
    from megatron.core.datasets.data_schedule import BalancedCPScheduler, DefaultDynamicCPScheduler

    def dynamic(world_size: int) -> Any:
        return DefaultDynamicCPScheduler(MAX_SEQLEN, 1, world_size, None).get_groups_and_subsamples

    def hybrid(world_size: int) -> Any:
        scheduler = BalancedCPScheduler(MAX_SEQLEN, Place(world_size))
        return lambda pairs: scheduler.get_groups_and_subsamples(pairs, None)[1]

    for name, make in (("DefaultDynamicCPScheduler", dynamic), ("BalancedCPScheduler", hybrid)):
        print(name)
        for world_size in WORLD_SIZES:
            found = Counter(
                outcome(make(world_size), batch(world_size, number), world_size) for number in range(options.batches)
            )
            print(f"  W {world_size:>2}: " + ", ".join(f"{count} {what}" for what, count in found.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
