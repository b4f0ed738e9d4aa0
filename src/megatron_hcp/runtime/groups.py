"""Process groups for context parallelism: the levels of hierarchical CP, and the sizes that dynamic CP chooses from.

torch.distributed requires every rank to create every group in the same order, even groups that it is not in. The rank
lists come from megatron_hcp.core, so they can be inspected (`hcp groups`) before a process starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from types import TracebackType

import torch.distributed as dist

from megatron_hcp.core.levels import all_levels_of
from megatron_hcp.ground.errors import HcpError


class GroupBuilder:
    """Builds process groups, and destroys them again when its `with` block ends.

    Args:
        timeout: seconds after which a collective on these groups fails instead of waiting for a lost rank.
        backend: "gloo" or "nccl"; None: the backend of the default group.

    Every method is collective over the whole world, not only over the ranks that the lists name.
    """

    def __init__(self, timeout: float, backend: str | None = None) -> None:
        self.timeout = timedelta(seconds=timeout)
        self.backend = backend
        self._mine: list[dist.ProcessGroup] = []

    def build(self, rank_lists: Iterable[Sequence[int]], desc: str) -> dist.ProcessGroup | None:
        """The group that holds this rank, of disjoint groups built from `rank_lists`; None if none holds it.

        `desc` is the group_desc under which torch's logs, NCCL's logs and the flight recorder show the groups.
        """
        mine = None
        for ranks in rank_lists:
            group = dist.new_group(list(ranks), timeout=self.timeout, backend=self.backend, group_desc=desc)
            if dist.get_rank() in ranks:
                assert mine is None, f"rank {dist.get_rank()} is in two groups of {desc}"
                mine = group
        if mine is not None:
            self._mine.append(mine)
        return mine

    def build_levels(
        self, cp_groups: Iterable[Sequence[int]], sizes: Sequence[int], desc: str = "CONTEXT_PARALLEL_GROUP"
    ) -> list[dist.ProcessGroup]:
        """This rank's group of each level, inner first: what Transformer Engine takes as cp_group for a2a+p2p.

        Args:
            cp_groups: the ranks of every CP group of the world, each in cp order.
            sizes: (inner, outer), whose product is the CP size.

        The descriptions are those of megatron-core: HIERARCHICAL_<desc>_L0, _L1.

        Raises:
            HcpError: the sizes do not cover the CP groups, or this rank is in none of them.
        """
        levels = [
            self.build(lists, f"HIERARCHICAL_{desc}_L{level}")
            for level, lists in enumerate(all_levels_of(cp_groups, sizes))
        ]
        mine = [group for group in levels if group is not None]
        if len(mine) < len(levels):
            raise HcpError(f"rank {dist.get_rank()} is in no CP group:", wanted="CP groups that cover every rank")
        return mine

    def build_dynamic_cp(
        self, dp_cp_groups: Iterable[Sequence[int]], sizes: Iterable[int], desc: str = "DYNAMIC_DP_CP_GROUP"
    ) -> dict[int, dist.ProcessGroup]:
        """This rank's group of each size that dynamic CP may choose, by size: runs of consecutive members.

        Args:
            dp_cp_groups: the ranks of every DPxCP group of the world, in order.
            sizes: the sizes to build; each divides the DPxCP size. Size 1 needs no group.

        Raises:
            HcpError: a size does not divide a DPxCP group, or this rank is in none of the groups.
        """
        dp_cp_groups = [list(ranks) for ranks in dp_cp_groups]
        groups: dict[int, dist.ProcessGroup] = {}
        for size in sizes:
            for ranks in dp_cp_groups:
                if len(ranks) % size:
                    raise HcpError(f"dynamic CP size {size} does not divide the DPxCP size {len(ranks)}")
            runs = [ranks[i : i + size] for ranks in dp_cp_groups for i in range(0, len(ranks), size)]
            group = self.build(runs, f"{desc}_{size}")
            if group is None:
                raise HcpError(f"rank {dist.get_rank()} is in no DPxCP group:", wanted="groups that cover every rank")
            groups[size] = group
        return groups

    def destroy(self) -> None:
        """Destroys this rank's groups, the last built first. Collective."""
        while self._mine:
            dist.destroy_process_group(self._mine.pop())

    def __enter__(self) -> GroupBuilder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            # Destroying a group on one rank breaks it for members that are still connecting.
            dist.barrier()
        self.destroy()


def built_groups() -> dict[str, list[list[int]]]:
    """The ranks of every process group that holds this rank, as torch.distributed has registered them, by group_desc.

    What was really built, whoever built it; groups with one description come in the order of their creation.
    """
    found: dict[str, list[list[int]]] = {}
    for group, ranks in dist.distributed_c10d._world.pg_group_ranks.items():
        if group in dist.distributed_c10d._world.pg_map:
            members = [rank for rank, _ in sorted(ranks.items(), key=lambda pair: pair[1])]
            found.setdefault(group.group_desc, []).append(members)
    return found
