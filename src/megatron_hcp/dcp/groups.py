"""Which sets of ranks have a process group in Megatron-Core's dynamic context parallelism."""

from __future__ import annotations

from megatron_hcp.dcp.lengths import MOST_RANKS, check_positive
from megatron_hcp.ground.errors import HcpError

TARGETS = ("main", "dev", "pow2", "any")
"""Who builds the groups: Megatron-Core's main branch and releases, its dev branch, or your own launcher (pow2); any:
consecutive ranks of every number, as Megatron-LM #6801 proposes (open; its rings give a rank at most four peers)."""


def usable_sizes(world_size: int, target: str = "pow2") -> tuple[int, ...]:
    """The sizes, ascending, that a group of the W ranks of DPxCP can have.

    main, dev: 1, W, and 2^k for 2 <= 2^k <= 2^(int(log2 W) - 1); an odd W > 1 is rejected, as upstream does. pow2: 1,
    2, 4, ... below W, and W. Both agree wherever W is a power of two. any: every size up to W. Source:
    megatron/core/parallel_state.py, create_hybrid_dp_cp_groups (main, 0.16.1: `range(int(log2 W))[1:]`) and
    create_dynamic_dp_cp_groups (dev: the same from 2^0 on); size W is the DPxCP group itself.

    >>> usable_sizes(12, "main"), usable_sizes(12)
    ((1, 2, 4, 12), (1, 2, 4, 8, 12))
    """
    world_size = check_positive("world_size", world_size, MOST_RANKS)
    if target not in TARGETS:
        raise HcpError(f"groups: found {target!r}", wanted=f"one of {', '.join(TARGETS)}")
    if target == "any":
        return tuple(range(1, world_size + 1))
    if target == "pow2":
        powers = (world_size - 1).bit_length()
    else:
        if world_size % 2 and world_size > 1:
            raise HcpError(
                f"groups={target}: found {world_size} ranks, but Megatron-Core needs an even number here",
                do="change the number of ranks, or use groups=pow2 if you build the process groups yourself",
            )
        powers = world_size.bit_length() - 1
    sizes = [1 << k for k in range(powers)]
    return tuple(sizes) if sizes and sizes[-1] == world_size else (*sizes, world_size)


def is_usable(start: int, size: int, world_size: int, target: str = "pow2") -> bool:
    """Whether the ranks start, ..., start + size - 1 have a process group of their own.

    >>> is_usable(4, 4, 12, "main"), is_usable(8, 4, 12, "main"), is_usable(0, 8, 12, "main")
    (True, True, False)
    """
    fits = start >= 0 and start + size <= world_size and (target == "any" or start % size == 0)
    return fits and size in usable_sizes(world_size, target)
