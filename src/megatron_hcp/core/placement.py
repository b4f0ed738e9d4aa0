"""Which node, and which NVLink domain, each rank is on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from megatron_hcp.ground.errors import HcpError


class Spans(NamedTuple):
    """How many nodes and NVLink domains each group touches."""

    nodes: list[int]
    domains: list[int]

    @property
    def num_cross_node(self) -> int:
        return sum(count > 1 for count in self.nodes)

    @property
    def num_cross_domain(self) -> int:
        return sum(count > 1 for count in self.domains)


class Placement:
    """Where the ranks of a launch are, under the distribution of Slurm or torchrun.

    block: ranks 0 … gpus_per_node-1 on node 0, and so on. cyclic (`srun --distribution=cyclic`): rank r on node r mod
    the number of nodes. An NVLink domain is `nvlink_domain` consecutive GPUs, node by node: the node itself on HGX, up
    to 72 GPUs on NVL72.

    >>> Placement(16, 8).node_of(9), Placement(16, 8, kind="cyclic").node_of(9)
    (1, 1)
    >>> Placement(16, 8).node_of(2), Placement(16, 8, kind="cyclic").node_of(3)
    (0, 1)
    """

    __slots__ = ("gpus_per_node", "kind", "num_nodes", "nvlink_domain", "world_size")

    def __init__(
        self, world_size: int, gpus_per_node: int, nvlink_domain: int | None = None, kind: str = "block"
    ) -> None:
        nvlink_domain = gpus_per_node if nvlink_domain is None else nvlink_domain
        for name, size in (
            ("world_size", world_size),
            ("gpus_per_node", gpus_per_node),
            ("nvlink_domain", nvlink_domain),
        ):
            if size < 1:
                raise HcpError(f"{name} is {size}:", wanted="a size of 1 or more")
        if kind not in ("block", "cyclic"):
            raise HcpError(f"placement {kind}:", wanted="block or cyclic")
        self.world_size = world_size
        self.gpus_per_node = gpus_per_node
        self.nvlink_domain = nvlink_domain
        self.kind = kind
        self.num_nodes = -(-world_size // gpus_per_node)

    def slot_of(self, rank: int) -> int:
        """The GPU's number, counted through all nodes: node x gpus_per_node + GPU in the node."""
        if self.kind == "block":
            return rank
        return rank % self.num_nodes * self.gpus_per_node + rank // self.num_nodes

    def node_of(self, rank: int) -> int:
        return self.slot_of(rank) // self.gpus_per_node

    def domain_of(self, rank: int) -> int:
        return self.slot_of(rank) // self.nvlink_domain

    def nodes(self) -> list[int]:
        """The node of every rank."""
        return [self.node_of(rank) for rank in range(self.world_size)]

    def domains(self) -> list[int]:
        """The NVLink domain of every rank."""
        return [self.domain_of(rank) for rank in range(self.world_size)]

    def crosses_node(self, ranks: Iterable[int]) -> bool:
        """Whether the ranks are on more than one node; examines at most one rank more than a node has GPUs."""
        return _differ(map(self.node_of, ranks))

    def crosses_domain(self, ranks: Iterable[int]) -> bool:
        """Whether the ranks are in more than one NVLink domain."""
        return _differ(map(self.domain_of, ranks))

    def spans_of(self, kinds: Iterable[Iterable[Sequence[int]]]) -> list[Spans]:
        """The spans of several lists of groups."""
        nodes = self.nodes()
        domains = nodes if self.nvlink_domain == self.gpus_per_node else self.domains()
        spans = []
        for groups in kinds:
            per_node = [len(places_of(ranks, nodes)) for ranks in groups]
            per_domain = per_node if domains is nodes else [len(places_of(ranks, domains)) for ranks in groups]
            spans.append(Spans(per_node, per_domain))
        return spans


def places_of(ranks: Sequence[int], place: Sequence[int]) -> set[int]:
    """The nodes (or domains) that a group touches; `place[rank]` is the node of a rank.

    `place` may also be a list that was gathered on a cluster.

    >>> places_of(range(0, 16, 4), Placement(16, 8).nodes())
    {0, 1}
    """
    if isinstance(ranks, range):
        return set(place[ranks.start : ranks.stop : ranks.step])
    return {place[rank] for rank in ranks}


def crosses(ranks: Sequence[int], place: Sequence[int]) -> bool:
    """Whether a group touches more than one node (or domain)."""
    return _differ(place[rank] for rank in ranks)


def _differ(places: Iterator[int]) -> bool:
    first = next(places, None)
    return any(place != first for place in places)
