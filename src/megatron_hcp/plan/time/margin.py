"""How far a predicted step may be off: the error of each term by its share of the step.

Nine of ten steps of a model and GPU that were left out of the fit are within the margin: `python lab plan/fit --leave
pair` prints it for pairs, models and GPUs. A step is told the better the more of it are terms that many measured steps
hold; where most is the host's or an exchange's time, the margin is wide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from megatron_hcp.plan.constants import Rates
from megatron_hcp.plan.layout import PlanJob
from megatron_hcp.plan.model import PlanModel

SPREADS = {
    "gemm": 0.1, "memory_bound": 0.1, "attention": 0.15, "tp": 0.3, "cp": 0.3, "ep": 0.4, "dp": 1.0, "host": 0.5
}  # fmt: skip
"""How far each term may be off, relative to it: more, the fewer of the measured steps depend on it."""
FEW = 0.25
"""The same for matrix products of a kind that few measured steps have: see `_has_few`."""
UNMEASURED = 0.5
"""The same for kernels of layers that no measured step has."""
HOST_OF_MANY = 1.0
"""How far the host's time may be off where a rank has more experts than in any measured step: assumed. An examiner had
two such steps of Nemotron 3 Super, in MXFP8 and NVFP4, that were predicted far too long, nearly all of it the host's;
the rows are not in the repository, and no result here has them."""
NOISE = 0.1
"""How far steps of one layout differ between releases that nothing here tells apart. From 0.1 to 0.12 pairs left
out had the best interval score, which asks for narrow margins and few steps far outside, when it was chosen; no command
here computes that again."""
UNCOVERED = 0.4
"""The least margin where no measurement covers something: a guess."""


def margin(
    model: PlanModel, job: PlanJob, rates: Rates, terms: Mapping[str, float], is_covered: bool,
    unmeasured: float = 0.0, has_many_experts: bool = False,
) -> float:  # fmt: skip
    """The margin of a step of these terms, relative: 0.1 is plus or minus 10 %.

    Args:
        unmeasured: the share of kernels of layers that no measured step has.
        has_many_experts: a rank has more experts than in any measured step: the host may wait as counted, or not at
            all, where a release starts them together.

    >>> from megatron_hcp.cost.gpus import gpu_named
    >>> from megatron_hcp.cost.model_sizes import ModelSizes
    >>> from megatron_hcp.plan.constants import rates_for
    >>> model = PlanModel(ModelSizes(6, 64, 4, 4, 16, 16, 256, 6, True), (False,) * 6)
    >>> job = PlanJob(8, 8, gpu_named("h100"), 8, 4096, 8)
    >>> few, much = ({"gemm": 1.0, "host": host} for host in (0.1, 1.0))
    >>> margin(model, job, rates_for(job), few, True) < margin(model, job, rates_for(job), much, True)
    True
    """
    seconds = sum(terms.values())
    offs = [SPREADS.get(name, 0.0) * value / seconds for name, value in terms.items()]
    offs.append(UNMEASURED * unmeasured)
    if has_many_experts:
        offs.append(HOST_OF_MANY * terms.get("host", 0.0) / seconds)
    if _has_few(model, job):
        offs.append(FEW * terms.get("gemm", 0.0) / seconds)
    wide = rates.margin_scale * math.hypot(NOISE, *offs)
    return wide if is_covered else max(UNCOVERED, wide)


def is_tied(rates: Rates, fastest: Mapping[str, float], other: Mapping[str, float], least: float) -> bool:
    """Whether two steps of one job differ by less than their terms can tell, or by less than `least`, relative.

    What both have of a term is off by the same: only the difference of each term is uncertain. A layout that trades one
    term for another may be tied at 10 %; one that only adds to a term is slower, however little.
    """
    both = {name: other.get(name, 0.0) - fastest.get(name, 0.0) for name in (*fastest, *other)}
    told = rates.margin_scale * math.hypot(*(SPREADS.get(name, 0.0) * by for name, by in both.items()))
    return abs(sum(both.values())) <= max(told, least * sum(fastest.values()))


def _has_few(model: PlanModel, job: PlanJob) -> bool:
    """Whether few measured steps have the job's matrix products: NVFP4, and experts in bf16 or on Hopper."""
    grouped = bool(model.sizes.experts) and (job.precision == "bf16" or job.gpu.name == "h100")
    return grouped or job.precision == "nvfp4"
