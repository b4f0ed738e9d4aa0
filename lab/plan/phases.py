"""Holds `hcp plan --phases` against what people reported: runs that fit, and phases that ran out of memory.

rl_cases.txt has the cases. Those whose name sorts first by a hash with `SEED` were looked at while the formulas were
written, the others only when they were done; rl_cases_later.txt has those of an examiner, rl_cases_fresh.txt and
rl_cases_reports.txt those of a third and a fourth person, of which a second half was run once the formulas were mended
for the first. For each set: on which side of the limit the count is, and after that what is printed, where a tight step
is no answer.

    python lab plan/phases            # all sets
    python lab plan/phases --each     # every case
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from statistics import median
from typing import NamedTuple

from program import parser_of

from megatron_hcp.launch.load import LoadOptions
from megatron_hcp.plan.from_launch import layout_of
from megatron_hcp.plan.phases.change import FirstFailure, first_failure
from megatron_hcp.plan.phases.job import ROLLOUT, SYNC
from megatron_hcp.plan.phases.margin import FAILS, TIGHT, answer_of
from megatron_hcp.plan.phases.memory import Phase, phases_of
from megatron_hcp.plan.phases.read import rl_job
from megatron_hcp.plan.question import question_of

CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rl_cases.txt")
LATER, FRESH, REPORTS = (
    os.path.join(os.path.dirname(CASES), f"rl_cases_{name}.txt") for name in ("later", "fresh", "reports")
)
FITS, ANY, UNCLEAR = "fits", "oom", "unclear"
SEED = 34
_UNKNOWN_BATCH = 64
"""Sequences of a step, where a case does not say it: memory does not depend on it."""


class Case(NamedTuple):
    """One report. `says`: fits, oom, the phase that ran out, or unclear: kept for the halves, not scored. `peak_gib` is
    0 where none is published. `release`: the framework's; "" for the newest."""

    name: str
    source: str
    gpu: str
    gpus: int
    model: str
    dialect: str
    release: str
    says: str
    peak_gib: float
    words: str


def cases(path: str = "") -> list[Case]:
    """All cases of a table, `CASES` without a path."""
    found = []
    with open(path or CASES, encoding="utf-8") as file:
        for line in file:
            if not line.startswith("#"):
                name, source, gpu, gpus, model, framework, says, peak, words = line.rstrip("\n").split(" | ")
                size = 0.0 if peak == "-" else float(peak)
                words = words.replace("@.", "actor_rollout_ref.")
                dialect, _, release = framework.partition(" ")
                found.append(Case(name, source, gpu, int(gpus), model, dialect, release, says, size, words))
    return found


def halves(items: list[Case]) -> tuple[list[Case], list[Case]]:
    """The half that was looked at, and the other."""
    ordered = sorted(items, key=lambda item: hashlib.sha256(f"{SEED} {item.name}".encode()).hexdigest())
    return ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]


def answered(case: Case) -> tuple[list[Phase], FirstFailure | None]:
    """The phases of that case's launch, and which fails first."""
    with tempfile.TemporaryDirectory() as folder:
        package = case.dialect.replace("-", "_")
        said = (f"{package}={case.release}",) if case.release else ()
        words = tuple(case.words.split())
        target = ""
        options = LoadOptions(dialect=case.dialect, words=words, model_file=case.model, assumes=said)
        if case.dialect in ("slime", "ms-swift"):  # known by their program
            target, options = os.path.join(folder, "run.sh"), LoadOptions(model_file=case.model, assumes=said)
            with open(target, "w", encoding="utf-8") as file:
                file.write(f"{'python3 ' if case.dialect == 'slime' else ''}{case.words}\n")
        given = {"gpus": case.gpus, "gpu": case.gpu, "global_batch": _UNKNOWN_BATCH}
        asked = question_of(target, options, given, None, True)
    layout = layout_of(asked.facts, asked.job.seq_length)
    rl = rl_job(asked.dialect, asked.settings, layout, asked.job.seq_length, asked.facts)
    found = phases_of(asked.model, layout, asked.job, rl)
    return found, first_failure(asked.model, layout, asked.job, rl, found)


def is_right(case: Case, failure: FirstFailure | None) -> bool:
    """Whether it fits as reported, or fails in the phase that the report names."""
    if failure is None or case.says == FITS:
        return failure is None and case.says == FITS
    return case.says in (ANY, failure.phase.name)


class Score(NamedTuple):
    """Of one case. `error` of the largest peak; None where none is published. `answer`: what is printed. `of_engine`:
    the fullest phase is the rollout or the synchronization, in which the engine is awake."""

    is_right: bool
    is_out: bool
    error: float | None
    answer: str | None
    of_engine: bool


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--each", action="store_true", help="print every case")
    each = parser.parse_args().each
    every: list[Score] = []
    sets = (*halves(cases()), cases(LATER), *halves(cases(FRESH)), *halves(cases(REPORTS)))
    titles = ("looked at", "kept apart", "later", "fresh, open", "fresh, sealed", "reports, open", "reports, sealed")
    for title, half in zip(titles, sets):
        found = [_scored(case, each) for case in sorted(half) if case.says != UNCLEAR]
        every += found
        out = [item.is_right for item in found if item.is_out]
        right = sum(item.is_right for item in found)
        print(f"{title}: {right} of {len(found)} right; of {len(out)} that ran out of memory {sum(out)}")
        errors = [abs(item.error) for item in found if item.error is not None]
        if errors:
            print(f"  published peaks: {len(errors)}, median error {median(errors):.1%}")
    for title, chosen in (("the engine is awake in the fullest phase", True), ("it sleeps, or is elsewhere", False)):
        print(f"{title}:")
        for said in (FITS, TIGHT, FAILS):
            found = [item for item in every if item.of_engine == chosen and item.answer == said]
            print(f"  {said}: {len(found)}, of which {sum(item.is_out for item in found)} ran out of memory")
    return 0


def _scored(case: Case, each: bool) -> Score:
    found, failure = answered(case)
    good, said = is_right(case, failure), answer_of(found)
    fullest = max(found, key=lambda item: item.peak / item.usable)
    off = fullest.peak / case.peak_gib - 1 if case.peak_gib else None
    if each or not good:
        peaks = " ".join(f"{item.name.split()[-1]} {item.peak:.0f}" for item in found)
        side = failure.phase.name if failure else FITS
        print(f"  {'right' if good else 'WRONG'} {case.name}: says {case.says}, count {side}, answer {said}")
        print(f"        {peaks} of {found[0].usable:.0f} GiB")
        if off is not None:
            print(f"        published peak {case.peak_gib} GiB, answer {fullest.peak:.1f}: {off:+.1%}")
    return Score(good, case.says != FITS, off, said, fullest.name in (ROLLOUT, SYNC))


if __name__ == "__main__":
    sys.exit(main())
