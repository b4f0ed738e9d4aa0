"""Why not another layout: the rule that forbids it, the memory it lacks, or the time it loses and to what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from megatron_hcp.plan.answer import UNTOLD, Judged, judge
from megatron_hcp.plan.constants import Rates
from megatron_hcp.plan.found import TIED
from megatron_hcp.plan.layout import RECOMPUTE, PlanJob
from megatron_hcp.plan.memory.peak import MEMORY_ERROR, is_tight
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.time.margin import is_tied

KEPT, ACTIVATIONS = "kept: ", "activations"
"""How terms of the memory begin that layers keep for their backward pass, and what they are together."""
MOST_PARTS = 3
"""Parts of the memory that are named."""


class Reason(NamedTuple):
    """Why a layout is not the one to take. `kind`: rule, memory, slower, tied or faster."""

    kind: str
    text: str
    rules: tuple[str, ...] = ()
    over_gib: float = 0.0
    slower: float = 0.0
    """Relative: 0.1 is ten per cent."""
    term: str = ""
    """The term of the time that differs most; of the memory, the largest."""
    recomputed: Judged | None = None
    """Where memory lacks: the layout with more recomputation, the fastest that fits, else the one that saves most."""


def more_recomputed(model: PlanModel, other: Judged, job: PlanJob, rates: Rates) -> Judged | None:
    """A layout that does not fit, with more recomputation: the fastest that fits, else the last; None if none is legal.

    Recomputation is a detail of a layout that a search chooses: without it the answer would be about a straw man.
    """
    kinds = RECOMPUTE[RECOMPUTE.index(other.layout.recompute) + 1 :]
    tried = [judge(model, replace(other.layout, recompute=kind), job, rates) for kind in kinds]
    fitting = [item for item in tried if item.fits and item.time]
    if fitting:
        return min(fitting, key=lambda item: item.time.seconds if item.time else 0.0)
    return tried[-1] if tried else None


def why_not(model: PlanModel, other: Judged, best: Judged, job: PlanJob, rates: Rates) -> Reason:
    """Why `best` is taken and not `other`."""
    if other.rules:
        return Reason("rule", f"{', '.join(other.rules)} forbids it", other.rules)
    assert other.time and best.time and other.memory
    if not other.fits and not other.is_open:
        largest = max(other.memory.terms, key=lambda name: other.memory.terms[name] if other.memory else 0.0)
        over = f"{other.over_gib:.1f} GiB more than the {other.usable_gib:.1f} GiB of a GPU"
        again = more_recomputed(model, other, job, rates)
        return Reason(
            "memory", f"{over}: {_largest(other.memory.terms)}{_with_more(again, best)}",
            over_gib=other.over_gib, term=largest, recomputed=again,
        )  # fmt: skip
    slower = other.time.seconds / best.time.seconds - 1
    lost = {name: other.time.terms[name] - best.time.terms[name] for name in best.time.terms}
    term = max(lost, key=lambda name: lost[name] if slower > 0 else -lost[name])
    by = f"{abs(slower):.1%} {'slower' if slower > 0 else 'faster'}, mostly by {words(term)}"
    if other.is_open:
        by += f"; {UNTOLD} {other.memory.peak:.1f} of {other.usable_gib:.1f} GiB"
    elif is_tight(other.memory.peak, job.gpu):
        by += (
            f"; it may not fit: {other.memory.peak:.1f} of {other.usable_gib:.1f} GiB, off by up to {MEMORY_ERROR:.1%}"
        )
    if is_tied(rates, best.time.terms, other.time.terms, TIED):
        return Reason("tied", f"tied: {by}", slower=slower, term=term)
    return Reason("slower" if slower > 0 else "faster", by, slower=slower, term=term)


def _with_more(again: Judged | None, best: Judged) -> str:
    """What more recomputation makes of a layout that does not fit."""
    if again is None or again.memory is None or again.time is None or best.time is None:
        return ""
    word = f"recompute={again.layout.recompute}"
    if not again.fits:
        return f"; with {word} still {again.over_gib:.1f} GiB over"
    slower = again.time.seconds / best.time.seconds - 1
    than = f"{abs(slower):.1%} {'slower' if slower >= 0 else 'faster'} than the first one"
    return f"; with {word} it fits at {again.memory.peak:.1f} GiB and takes {again.time.seconds:.4g} s, {than}"


def held_parts(terms: Mapping[str, float]) -> dict[str, float]:
    """The parts of the memory, all that layers keep for their backward pass as activations.

    >>> held_parts({"weights": 2.0, "kept: mlp": 3.0, "kept: norms": 1.5})
    {'weights': 2.0, 'activations': 4.5}
    """
    parts: dict[str, float] = {}
    for name, value in terms.items():
        part = ACTIVATIONS if name.startswith(KEPT) else name
        parts[part] = parts.get(part, 0.0) + value
    return parts


def _largest(terms: Mapping[str, float]) -> str:
    parts = held_parts(terms)
    most = sorted(parts, key=lambda part: -parts[part])[:MOST_PARTS]
    return ", ".join(f"{part} {parts[part]:.3g}" for part in most) + " GiB"


_WORDS = {
    "gemm": "matrix products", "attention": "attention", "memory_bound": "memory-bound operations",
    "tp": "exposed TP communication", "ep": "exposed EP communication", "cp": "exposed CP communication",
    "pp": "pipeline sends", "dp": "exposed DP communication", "recompute": "recomputation",
    "host": "waiting for the host", "imbalance": "uneven stages",
    "bubble": "the pipeline bubble", "optimizer": "the optimizer",
}  # fmt: skip


def words(term: str) -> str:
    """A term of the time in words."""
    return _WORDS.get(term, term)
