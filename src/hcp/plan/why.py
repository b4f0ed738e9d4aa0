"""Why not another layout: the rule that forbids it, the memory it lacks, or the time it loses and to what."""

from __future__ import annotations

from typing import NamedTuple

from hcp.plan.answer import Judged
from hcp.plan.found import TIED


class Reason(NamedTuple):
    """Why a layout is not the one to take. `kind`: rule, memory, slower, tied or faster."""

    kind: str
    text: str
    rules: tuple[str, ...] = ()
    over_gib: float = 0.0
    slower: float = 0.0
    """Relative: 0.1 is ten per cent."""
    term: str = ""
    """The term of the time that differs most."""


def why_not(other: Judged, best: Judged) -> Reason:
    """Why `best` is taken and not `other`."""
    if other.rules:
        return Reason("rule", f"{', '.join(other.rules)} forbids it", other.rules)
    assert other.time and best.time and other.memory
    if not other.fits:
        largest = max(other.memory.terms, key=lambda name: other.memory.terms[name] if other.memory else 0.0)
        over = f"{other.over_gib:.1f} GiB more than the {other.usable_gib:.1f} GiB of a GPU"
        return Reason(
            "memory", f"{over}, mostly {held_words(largest)}",
            over_gib=other.over_gib, term=largest,
        )  # fmt: skip
    slower = other.time.seconds / best.time.seconds - 1
    lost = {name: other.time.terms[name] - best.time.terms[name] for name in best.time.terms}
    term = max(lost, key=lambda name: lost[name] if slower > 0 else -lost[name])
    by = f"{abs(slower):.1%} {'slower' if slower > 0 else 'faster'}, mostly by {words(term)}"
    if abs(slower) < TIED:
        return Reason("tied", f"tied: {by}", slower=slower, term=term)
    return Reason("slower" if slower > 0 else "faster", by, slower=slower, term=term)


_WORDS = {
    "gemm": "matrix products", "attention": "attention", "memory_bound": "memory-bound operations",
    "tp": "TP communication", "ep": "EP communication", "cp": "CP communication", "pp": "pipeline sends",
    "dp": "DP communication", "recompute": "recomputation", "host": "waiting for the host",
    "imbalance": "uneven stages", "bubble": "the pipeline bubble", "optimizer": "the optimizer",
}  # fmt: skip


def words(term: str) -> str:
    """A term of the time in words."""
    return _WORDS.get(term, term)


def held_words(term: str) -> str:
    """A term of the memory in words: what is kept for the backward pass are activations.

    >>> held_words("kept: mlp"), held_words("weights")
    ('mlp activations', 'weights')
    """
    kept = term.removeprefix("kept: ")
    return term if kept == term else f"{kept} activations"
