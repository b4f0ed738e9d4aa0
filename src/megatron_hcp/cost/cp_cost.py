"""What context parallelism communicates, and how much of that time attention doesn't hide.

For each communication type: the bytes that a rank sends per token that it holds, and the extra time of a group of C
ranks. Forward and backward pass together, in seconds; for one layer or all, depending on the rates.
"""

from __future__ import annotations

from typing import NamedTuple

from megatron_hcp.ground.errors import HcpError

COMM_TYPES = ("p2p", "a2a", "a2a+p2p", "all_gather")
RING_PASSES, A2A_PASSES = 3, 2
"""Multiples of the forward volume: a ring sends K, V, then K, V and gradients; all-to-alls repeat theirs."""


class TokenBytes(NamedTuple):
    """Bytes per token, rank and layer: of K and V, and of Q and the output."""

    kv: float
    qo: float


def bytes_per_token(heads: int, kv_heads: int, qk_head_dim: int, v_head_dim: int, tp: int = 1) -> TokenBytes:
    """Bytes per token and layer on one tensor-parallel rank, in bf16.

    >>> bytes_per_token(32, 8, 128, 128)
    TokenBytes(kv=4096, qo=16384)
    """
    head = 2 * (qk_head_dim + v_head_dim)
    return TokenBytes(kv=max(1, kv_heads // tp) * head, qo=max(1, heads // tp) * head)


class Link(NamedTuple):
    """One level of the network, seen from one rank: inside a node, or between nodes."""

    kv_s: float
    """Seconds to pass the K and V of one token to the next rank, including gradients in the backward pass."""
    a2a_s: float
    """Seconds to exchange Q, K, V and output of one token, and their gradients, if all of it left the rank."""
    step_s: float = 0.0
    """Seconds before the first byte of a ring step arrives: kernel launch, latency."""


def link_of(each: TokenBytes, bandwidth: float, step_s: float = 0.0) -> Link:
    """A link of that many bytes per second in each direction."""
    return Link(RING_PASSES * each.kv / bandwidth, A2A_PASSES * (each.kv + each.qo) / bandwidth, step_s)


class CpTraffic(NamedTuple):
    """How context parallelism communicates, and over what."""

    comm_type: str
    inside: Link
    across: Link
    ranks_per_node: int
    """Consecutive ranks of DPxCP on one node."""
    inner: int = 1
    """a2a+p2p: ranks of the all-to-all level."""

    def exposed_s(self, size: int, tokens: float, attention_s: float, across: bool) -> float:
        """Seconds that communication adds to a group of `size` ranks.

        Args:
            size: C, its ranks.
            tokens: padded tokens on one of its ranks, over all its sequences.
            attention_s: seconds of attention on one rank, forward and backward.
            across: whether the group has ranks on several nodes.

        A ring has C - 1 exchanges; each overlaps the attention to one of C chunks. All-to-alls overlap nothing.

        >>> slow = Link(kv_s=1e-6, a2a_s=2e-6)
        >>> CpTraffic("p2p", slow, slow, 8).exposed_s(4, 1000, 0.002, False)  # 3 * (1.0 - 0.5) ms
        0.0015
        """
        if size == 1:
            return 0.0
        link = self.across if across else self.inside
        if self.comm_type == "p2p":
            return self._ring(size, link, tokens, attention_s)
        if self.comm_type == "all_gather":
            return (size - 1) * (tokens * link.kv_s + link.step_s)
        if self.comm_type == "a2a":
            return self._all_to_all(size, tokens, across)
        inner = min(self.inner, size)
        time = self._all_to_all(inner, tokens, inner > self.ranks_per_node)
        return time + self._ring(-(-size // inner), link, tokens, attention_s)

    def _ring(self, ranks: int, link: Link, tokens: float, attention_s: float) -> float:
        return (ranks - 1) * max(0.0, tokens * link.kv_s + link.step_s - attention_s / ranks)

    def _all_to_all(self, ranks: int, tokens: float, across: bool) -> float:
        """Each rank sends 1 / C of its tokens' bytes to each rank, over both kinds of links at once."""
        if ranks == 1:
            return 0.0
        near = min(ranks, self.ranks_per_node) if across else ranks
        inside = tokens * self.inside.a2a_s * (near - 1) / ranks
        outside = tokens * self.across.a2a_s * (ranks - near) / ranks
        return max(inside, outside) + (self.across if across else self.inside).step_s


def check_comm_type(comm_type: str, hcp_sizes: tuple[int, int] | None) -> int:
    """The ranks of the inner level.

    Raises:
        HcpError: an unknown type; a2a+p2p without its sizes.
    """
    if comm_type not in COMM_TYPES:
        raise HcpError(f"cp_comm_type: found {comm_type!r:.40}", wanted=f"one of {', '.join(COMM_TYPES)}")
    if comm_type != "a2a+p2p":
        return 1
    if hcp_sizes is None or min(hcp_sizes) < 1:
        raise HcpError(f"hierarchical_context_parallel_sizes: found {hcp_sizes}", wanted="two sizes for a2a+p2p")
    return hcp_sizes[0]
