"""What a plan is made for: rank limits, padding, process groups, pipeline, and the cost of work."""

from __future__ import annotations

from typing import NamedTuple

from megatron_hcp.dcp.cost import DEFAULT_COST, Cost
from megatron_hcp.dcp.groups import usable_sizes
from megatron_hcp.dcp.lengths import MOST_RANKS, check_positive
from megatron_hcp.ground.errors import HcpError

LAYOUTS = ("zigzag", "contiguous")
"""How a sequence is laid out on its group's ranks: two chunks on each, or one (verl's cp_layout)."""


class Memory(NamedTuple):
    """A limit on a rank's memory in one micro-batch, in addition to the limit on its tokens."""

    limit_bytes: float
    bytes_per_token: float
    """Per padded token on the rank: saved activations."""
    bytes_per_group_token: float = 0.0
    """Per padded token of its whole group: K and V of all ring steps (TE keeps them until the ring is done)."""

    def tokens(self, size: int) -> int:
        """Padded tokens per rank that a group of this size may hold.

        >>> Memory(1000.0, 1.0, 0.25).tokens(4)
        500
        """
        each = self.bytes_per_token + size * self.bytes_per_group_token
        return int(self.limit_bytes / each) if each > 0 else 1 << 60


class Setup(NamedTuple):
    """Everything that a plan is made for, besides the lengths, W and M."""

    cost: Cost = DEFAULT_COST
    tp: int = 1
    sequence_parallel: bool = True
    groups: str = "pow2"
    pp: int = 1
    vpp: int = 1
    """Model chunks of each pipeline stage: the bubble is (pp - 1) / vpp micro-batches long."""
    min_cp_size: int = 1
    layout: str = "zigzag"
    min_local_rows: int = 1
    """Rows that each rank pads its share of a micro-batch to, at the least (verl)."""
    memory: Memory | None = None

    @property
    def align(self) -> int:
        """Sequences are padded to multiples of this on one rank."""
        return self.tp if self.sequence_parallel else 1

    @property
    def chunks(self) -> int:
        """Chunks of a sequence on each rank of a group of several."""
        return 2 if self.layout == "zigzag" else 1

    def multiple(self, size: int) -> int:
        """Sequences in a group of this size are padded to a multiple of this many tokens.

        >>> Setup(tp=2).multiple(4), Setup(tp=2).multiple(1)
        (16, 2)
        """
        return self.align * (1 if size == 1 else self.chunks * size)

    def padded(self, length: int, size: int) -> int:
        """Tokens of a sequence after padding, over all ranks of its group."""
        multiple = self.multiple(size)
        return -(-length // multiple) * multiple

    def tokens(self, size: int, max_seqlen: int) -> int:
        """Padded tokens that each rank of a group of this size may hold."""
        return max_seqlen if self.memory is None else min(max_seqlen, self.memory.tokens(size))

    def holds(self, length: int, size: int, max_seqlen: int) -> bool:
        """Whether a group of this size may hold a sequence of this length."""
        return self.padded(length, size) <= size * self.tokens(size, max_seqlen)

    def sizes(self, world_size: int) -> tuple[int, ...]:
        """The sizes, ascending, that a group can have."""
        least = self.min_cp_size
        return tuple([size for size in usable_sizes(world_size, self.groups) if size % least == 0])

    def crosses(self, start: int, size: int) -> bool:
        """Whether the ranks start, ..., start + size - 1 are on several nodes."""
        node = self.cost.machine.traffic.ranks_per_node
        return start // node != (start + size - 1) // node


def check_setup(setup: Setup, world_size: int, max_seqlen: int) -> Setup:
    """The setup, its counts as ints.

    Raises HcpError, naming the setting, if W ranks of M tokens can't be planned for like this.
    """
    setup = setup._replace(
        tp=check_positive("tp", setup.tp, MOST_RANKS), pp=check_positive("pp", setup.pp, MOST_RANKS),
        vpp=check_positive("vpp", setup.vpp, MOST_RANKS),
        min_cp_size=check_positive("min_cp_size", setup.min_cp_size),
        min_local_rows=check_positive("min_local_rows", setup.min_local_rows),
    )  # fmt: skip
    if setup.layout not in LAYOUTS:
        raise HcpError(f"layout: found {setup.layout!r:.40}", wanted=f"one of {', '.join(LAYOUTS)}")
    if world_size % setup.min_cp_size or setup.min_cp_size not in usable_sizes(world_size, setup.groups):
        raise HcpError(
            f"min_cp_size: found {setup.min_cp_size}",
            wanted=f"a size of process groups that divides the {world_size} ranks",
        )
    if setup.min_local_rows > max_seqlen:
        raise HcpError(
            f"max_seqlen: found {max_seqlen}, but each rank pads its share to {setup.min_local_rows} rows "
            "(min_local_rows)",
            do=f"raise it to {setup.min_local_rows}",
        )
    memory = setup.memory
    if memory is not None and not (memory.limit_bytes > 0 and min(memory[1:]) >= 0 and memory.tokens(1) >= 1):
        raise HcpError(f"memory: found {tuple(memory)}", wanted="room for one token at least, and no negative bytes")
    return setup
