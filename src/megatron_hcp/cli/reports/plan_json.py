"""`hcp.plan/1`: layouts with their rules, memory and time, and what would change the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from megatron_hcp import __version__
from megatron_hcp.plan.answer import Judged
from megatron_hcp.plan.change import Flip, Remedy
from megatron_hcp.plan.constants import Rates
from megatron_hcp.plan.found import Candidate
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.overrides import FRAMEWORKS, overrides
from megatron_hcp.plan.phases.change import FirstFailure
from megatron_hcp.plan.phases.margin import FAILS, FITS, Room, answer
from megatron_hcp.plan.phases.memory import Phase
from megatron_hcp.plan.ranks import rank_map
from megatron_hcp.plan.time.overlap import ring_overlap
from megatron_hcp.plan.why import Reason

SCHEMA = "hcp.plan/1"


class Counted(NamedTuple):
    """What is counted of one kind, and what the formulas say; None where one of them has no answer."""

    counted: int | None
    formulas: float | None


class RankMemory(NamedTuple):
    """A rank's memory as it was counted in upstream's own run.

    Args:
        missing: why it was not counted to the end; "" where it was.
        kinds: weights, gradients, optimizer; what layers keep for the backward pass, and what the rest keeps.
        modules: bytes of parameters, gradients and kept tensors by module.
        stand_ins: those that keep nothing of what the real modules keep.
    """

    rank: int
    role: str
    missing: str
    kinds: Mapping[str, Counted]
    modules: Mapping[str, Mapping[str, int]]
    stand_ins: Sequence[str]


class Shown(NamedTuple):
    """All that a plan prints. `reasons`: (layout, why it is not the first); `legal` None without a search."""

    model: PlanModel
    job: PlanJob
    rates: Rates
    layouts: list[Judged]
    taken_for_granted: list[str]
    legal: int | None = None
    frontier: Sequence[Candidate] = ()
    flips: Sequence[Flip] = ()
    reasons: Sequence[tuple[Judged, Reason]] = ()
    nearest: Judged | None = None
    remedy: Remedy | None = None
    least: Judged | None = None
    measured: Sequence[RankMemory] | None = None
    phases: Sequence[Phase] | None = None
    failure: FirstFailure | None = None
    room: Room | None = None
    phases_unsure: Sequence[str] = ()
    refused: Sequence[str] = ()
    """The errors that a check finds in the launch."""


def plan_json(shown: Shown) -> dict[str, Any]:
    """The object of schemas/hcp.plan.1.json."""
    job, model = shown.job, shown.model
    return {
        "schema": SCHEMA,
        "hcp": __version__,
        "model": {
            "name": model.name, "layers": model.sizes.num_layers, "experts": model.sizes.experts,
            "not_understood": list(model.kind_unknown),
        },
        "job": {
            "gpus": job.world_size, "gpus_per_node": job.gpus_per_node, "gpu": job.gpu.name,
            "nvlink_domain": job.nvlink_domain, "domain": job.domain, "seq_length": job.seq_length,
            "global_batch": job.global_batch, "precision": job.precision, "packed": job.packed,
            "versions": dict(job.versions),
        },
        **({"refused": list(shown.refused)} if shown.refused else {}),
        "assumed": shown.taken_for_granted,
        "legal": shown.legal,
        "layouts": [layout_json(item, shown) for item in shown.layouts],
        "frontier": [
            {"layout": sizes_json(item.layout), "step_s": item.seconds, "peak_gib": item.peak_gib}
            for item in shown.frontier
        ],
        "flips": [
            {"layout": sizes_json(flip.layout), "link": flip.link, "side": flip.side, "gb_per_s": flip.at,
             "now_gb_per_s": flip.now}
            for flip in shown.flips
        ],
        "why_not": [
            {"layout": sizes_json(other.layout), "kind": reason.kind, "text": reason.text, "rules": list(reason.rules),
             "over_gib": reason.over_gib, "slower": reason.slower, "term": reason.term or None,
             "recomputed": layout_json(reason.recomputed, shown) if reason.recomputed else None}
            for other, reason in shown.reasons
        ],
        "nearest": layout_json(shown.nearest, shown) if shown.nearest else None,
        "remedy": {"text": shown.remedy.text, "layout": sizes_json(shown.remedy.layout)} if shown.remedy else None,
        "least": layout_json(shown.least, shown) if shown.least else None,
        "measured": None if shown.measured is None else [_rank_json(one) for one in shown.measured],
        "phases": None if shown.phases is None else [
            {"phase": item.name, "peak_gib": item.peak, "usable_gib": item.usable, "over_gib": item.over,
             "fits": item.fits if answer(item) in (FITS, FAILS) else None, "stage": item.stage,
             "tokens": item.tokens, "terms": dict(item.terms)}
            for item in shown.phases
        ],
        **({"phases_unsure": list(shown.phases_unsure)} if shown.phases_unsure else {}),
        "fails_first": shown.failure and {"phase": shown.failure.phase.name, "setting": shown.failure.setting or None},
        "tight": shown.room and {
            "phase": shown.room.phase.name, "spare_gib": shown.room.spare_gib, "setting": shown.room.setting or None,
        },
    }  # fmt: skip


def _rank_json(one: RankMemory) -> dict[str, Any]:
    return {
        "rank": one.rank, "role": one.role, "missing": one.missing,
        "bytes": {kind: found._asdict() for kind, found in one.kinds.items()},
        "modules": [{"module": module, **sizes} for module, sizes in one.modules.items()],
        "not_measured": list(one.stand_ins),
    }  # fmt: skip


def sizes_json(layout: Layout) -> dict[str, Any]:
    """The layout's axes, by the names of `--layout`."""
    return {
        "tp": layout.tp, "cp": layout.cp, "pp": layout.pp, "vp": layout.vp, "ep": layout.ep, "etp": layout.etp,
        "mbs": layout.mbs, "cp_comm_type": layout.cp_comm_type if layout.cp > 1 else None,
        "hcp_sizes": list(layout.hcp_sizes) if layout.hcp_sizes else None, "recompute": layout.recompute,
    }  # fmt: skip


def layout_json(item: Judged, shown: Shown) -> dict[str, Any]:
    """One layout, judged."""
    layout, job, held, time = item.layout, shown.job, item.memory, item.time
    ring = ring_overlap(shown.model, layout, job, shown.rates) if time else None
    legal = not item.rules
    return {
        "layout": sizes_json(layout),
        "legal": legal,
        "fits": None if item.is_open else item.fits,
        "rules": list(item.rules),
        "tied": item.tied,
        "dp": job.dp(layout) if legal else None,
        "micro_batches": job.micro_batches(layout) if legal else None,
        "memory_gib": held and {
            "peak": held.peak, "usable": item.usable_gib, "over": item.over_gib, "stage": held.stage,
            "terms": dict(held.terms), "by_stage": list(held.by_stage),
        },
        "step_s": time and time.seconds,
        "tokens_per_s_per_gpu": item.tokens_per_s if time else None,
        "tflops_per_gpu": item.tflops if time else None,
        "band": time and time.band,
        "marks": list(time.marks) if time else [],
        "time_s": time and {"terms": dict(time.terms), "hidden": dict(time.hidden)},
        "overlap": ring and {**ring._asdict(), "hidden": ring.is_hidden},
        "ranks": [axis._asdict() for axis in rank_map(layout, job)] if legal else [],
        "overrides": {name: overrides(shown.model, layout, job, name) for name in FRAMEWORKS} if legal else None,
    }  # fmt: skip
