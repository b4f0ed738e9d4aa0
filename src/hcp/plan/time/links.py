"""How fast the ranks of a group reach each other, and how long EP's exchange takes."""

from __future__ import annotations

from hcp.plan.constants import Rates


def ring_bandwidth(size: int, stride: int, domain: int, rates: Rates) -> float:
    """Bytes per second and rank of a ring collective over `size` ranks that are `stride` apart.

    Between NVLink domains every rank of the group inside a domain drives its own network adapter.
    """
    if size * stride <= domain:
        return rates.nvlink
    return min(rates.nvlink, rates.network * max(1, domain // stride))


def exchange_seconds(rows_bytes: float, topk: int, ep: int, etp: int, domain: int, rates: Rates) -> float:
    """Seconds of one dispatch or combine of `rows_bytes`: each token's row once for each of its `topk` experts.

    Across NVLink domains a token is sent once to each domain that has an expert of it, nodes * (1 - (1 - 1/nodes)^k)
    of them, and passed on inside; both happen at once.
    """
    if ep == 1:
        return 0.0
    inside = rows_bytes * (ep - 1) / ep / rates.nvlink
    nodes = -(-ep * etp // domain)
    if nodes == 1:
        return inside
    copies = nodes * (1.0 - (1.0 - 1.0 / nodes) ** topk)
    across = rows_bytes / topk * copies * (nodes - 1) / nodes / rates.network
    return max(inside, across)
