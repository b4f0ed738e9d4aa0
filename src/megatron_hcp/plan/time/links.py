"""How fast the ranks of a group reach each other, and how long EP's exchange takes."""

from __future__ import annotations

from math import gcd

from megatron_hcp.plan.constants import Rates


def fits_inside(size: int, stride: int, domain: int) -> bool:
    """Whether no group of `size` ranks that are `stride` apart crosses the edge of a domain.

    The groups fill blocks of size x stride ranks, one block after the other: of blocks of 6 in domains of 8 the second
    has ranks 6 to 11.

    >>> fits_inside(4, 2, 8), fits_inside(6, 1, 8), fits_inside(2, 5, 8)
    (True, False, False)
    """
    return domain % (size * stride) == 0


def ranks_inside(size: int, stride: int, domain: int) -> int:
    """Ranks that every group has at least in a domain in which it has any.

    >>> ranks_inside(16, 1, 8), ranks_inside(6, 1, 8), ranks_inside(4, 8, 8)
    (8, 2, 1)
    """
    return max(1, gcd(size * stride, domain) // stride)


def ring_bandwidth(size: int, stride: int, domain: int, rates: Rates) -> float:
    """Bytes per second and rank of a ring collective over `size` ranks that are `stride` apart.

    Between NVLink domains every rank of the group inside a domain drives its own network adapter.
    """
    if fits_inside(size, stride, domain):
        return rates.nvlink
    return min(rates.nvlink, rates.network * ranks_inside(size, stride, domain))


def exchange_seconds(
    rows_bytes: float, topk: int, ep: int, etp: int, domain: int, rates: Rates, sends_once: bool
) -> float:  # fmt: skip
    """Seconds of one dispatch or combine of `rows_bytes`: each token's row once for each of its `topk` experts.

    An all-to-all sends each row to its expert's rank, inside NVLink domains and between them at once. With `sends_once`
    a token goes once to each domain that has an expert of it, and once to each rank inside: n * (1 - (1 - 1/n)^k) of n.
    Source: _DeepepManager of token_dispatcher.py in megatron-core, which copies rows for experts after the dispatch.
    """
    if ep == 1:
        return 0.0
    near, token = ranks_inside(ep, etp, domain), rows_bytes / topk
    if fits_inside(ep * etp, 1, domain):
        return (token * _reached(ep, topk) if sends_once else rows_bytes) * (ep - 1) / ep / rates.nvlink
    if not sends_once:
        return max(rows_bytes * (near - 1) / rates.nvlink, rows_bytes * (ep - near) / rates.network) / ep
    nodes = max(2, -(-ep * etp // domain))
    inside = token * _reached(ep, topk) * (ep - 1) / ep / rates.nvlink
    return max(inside, token * _reached(nodes, topk) * (nodes - 1) / nodes / rates.network)


def _reached(places: int, topk: int) -> float:
    """Of so many places, those that a token's experts are in, on average."""
    return places * (1.0 - (1.0 - 1.0 / places) ** topk)
