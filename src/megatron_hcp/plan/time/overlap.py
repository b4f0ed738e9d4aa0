"""Whether the ring of context parallelism hides behind attention: the inequality, with its numbers."""

from __future__ import annotations

from typing import NamedTuple

from megatron_hcp.plan.constants import Rates
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.time.layer import Work, cp_traffic, ring_size
from megatron_hcp.plan.time.links import fits_inside


class Overlap(NamedTuple):
    """One step of a ring: sending K and V takes `send_s`, attention to one chunk `attention_s`; forward and backward.

    It hides from `needed` tokens of a sequence on each rank of the ring; it has `tokens`.
    """

    steps: int
    send_s: float
    attention_s: float
    tokens: int
    needed: int
    across: bool
    """Between NVLink domains."""

    @property
    def is_hidden(self) -> bool:
        return self.send_s <= self.attention_s


def ring_overlap(model: PlanModel, layout: Layout, job: PlanJob, rates: Rates) -> Overlap | None:
    """The overlap of that layout's ring; None without a ring.

    Both times are linear in the tokens of a rank, and attention in the length of a rank's chunk as well.
    """
    ring = ring_size(layout)
    if ring == 1:
        return None
    work = Work(model, job, rates)
    traffic = cp_traffic(model.sizes, layout, job.domain, rates)
    across = not fits_inside(layout.cp, layout.tp, job.domain)
    send = work.tokens(layout) * (traffic.across if across else traffic.inside).kv_s
    attention = work.front(layout).attention / ring
    tokens = job.seq_length // ring
    return Overlap(ring - 1, send, attention, tokens, int(tokens * send / attention), across)
