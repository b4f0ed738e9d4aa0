"""How fast the ranks of a group reach each other, and how long EP's exchange takes."""

from __future__ import annotations

from math import gcd

from hcp.plan.constants import Rates


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


def exchange_seconds(rows_bytes: float, topk: int, ep: int, etp: int, domain: int, rates: Rates) -> float:
    """Seconds of one dispatch or combine of `rows_bytes`: each token's row once for each of its `topk` experts.

    Across NVLink domains a token is sent once to each domain that has an expert of it, nodes * (1 - (1 - 1/nodes)^k)
    of them, and passed on inside; both happen at once.
    """
    if ep == 1:
        return 0.0
    inside = rows_bytes * (ep - 1) / ep / rates.nvlink
    if fits_inside(ep * etp, 1, domain):
        return inside
    nodes = max(2, -(-ep * etp // domain))
    copies = nodes * (1.0 - (1.0 - 1.0 / nodes) ** topk)
    across = rows_bytes / topk * copies * (nodes - 1) / nodes / rates.network
    return max(inside, across)
