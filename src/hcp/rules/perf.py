"""Speed: layouts that are legal and slow."""

from __future__ import annotations

from hcp.rules.cp.view import over, smaller_divisors, under_cp
from hcp.rules.rule import Example, Fix, Problem, rule
from hcp.rules.upstream import BRIDGE_MOE_DOC
from hcp.rules.view import View

_SHORT = 1024
"""Tokens per rank below which communication shows."""


@rule(
    "PERF001",
    severity="info",
    effect="slow",
    stage="training",
    source=(BRIDGE_MOE_DOC.says("", "seq_len / 4096", ">=0.5"),),
    applies=under_cp(lambda v: v.dialect in ("mlm", "bridge") and v.known("seq_length")),
    good=Example("mlm", "--context-parallel-size 4 --seq-length 16384"),
    bad=Example("mlm", "--context-parallel-size 4 --seq-length 1024"),
)
def slices_are_long_enough(v: View) -> Problem | None:
    """A rank's part of the sequence is long enough to hide communication.

    Attention grows with the square of the sequence, the exchange of K and V linearly. Below about a thousand tokens
    per rank matrix products are thin and ring steps are not hidden. Upstream's rule of thumb is one CP rank per
    4096 tokens.
    """
    length = v.seq_length
    if length is None or length >= _SHORT * v.cp:
        return None
    fits = [size for size in smaller_divisors(int(v.cp)) if length >= _SHORT * size]
    return Problem(
        message="each rank's part of the sequence is so short that communication is not hidden behind attention",
        found=f"{length // v.cp} tokens per rank (seq_length {length} at context_parallel_size {v.cp})",
        wanted="about 4096 tokens per rank",
        facts=("cp", "seq_length"),
        fixes=tuple(Fix({"cp": size}, over("context", size)) for size in fits[:1]),
    )


RULES = (slices_are_long_enough,)
