"""All layouts of a job, axis by axis: what of them is legal is told by `megatron_hcp.plan.legal`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from megatron_hcp.core.releases import MCORE_PIPELINE_LAYOUT, at_least
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.plan.layout import RECOMPUTE, Layout, PlanJob, parse_layout
from megatron_hcp.plan.legal import forbidden, fp8_blocks_fit, wrong_lengths
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.time.step import MEASURED_ETP, MEASURED_EXPERTS

MOST_TP = 16
MICRO_BATCHES = (1, 2, 4, 8, 16)
Fixed = Mapping[str, Any]
"""Axes that are given, by the names of `Layout`."""
FIXABLE = ("tp", "cp", "pp", "vp", "ep", "etp", "mbs", "cp_comm_type", "hcp_sizes", "recompute")


def parse_fixed(words: tuple[str, ...]) -> Fixed:
    """What `--hold tp=2 cp_comm_type=a2a` says.

    Raises:
        HcpError: an unknown name or a value of the wrong kind.
    """
    names = [word.partition("=")[0].replace("vpp", "vp") for word in " ".join(words).split()]
    if "hcp_sizes" in names and "cp_comm_type" not in names:
        words, names = (*words, "cp_comm_type=a2a+p2p"), [*names, "cp_comm_type"]
    try:
        layout = parse_layout(" ".join(words))
    except HcpError as error:
        error.found = f"--hold: {error.found.removeprefix('layout: ')}"
        raise
    return {name: getattr(layout, name) for name in names}


def possible_fixed(model: PlanModel, fixed: Fixed) -> Fixed:
    """What is given, if the model has such an axis.

    Raises:
        HcpError: experts' axes of a model without experts; more stages than the model has parts; a type of CP
            communication without CP.
    """
    axes = [name for name in ("ep", "etp") if fixed.get(name, 1) > 1 and not model.sizes.experts]
    if axes:
        found = f"found {axes[0]}={fixed[axes[0]]} for a model without experts"
        raise HcpError(
            f"--hold: {found}", wanted=f"{axes[0]}=1", do="leave it out, or give the config.json of an MoE model"
        )
    check_stages(model, fixed.get("pp", 1) * fixed.get("vp", 1), "--hold")
    kind = fixed.get("cp_comm_type", "p2p")
    if fixed.get("cp") == 1 and kind != "p2p":
        raise HcpError(f"--hold: found cp=1 with cp_comm_type={kind}", wanted="a CP group for it", do="leave one out")
    return fixed


def parts_of(model: PlanModel) -> int:
    """Stages that the model can be cut into: layers, with embedding and loss as layers."""
    return model.sizes.num_layers + 2 + model.mtp


def check_stages(model: PlanModel, stages: int, where: str) -> None:
    """Returns if the model has so many parts, counted over all chunks of all stages.

    Raises:
        HcpError: it has fewer.
    """
    parts = parts_of(model)
    if stages > parts:
        raise HcpError(
            f"{where}: found {stages} pipeline stages (pp x vp) for {model.sizes.num_layers} layers",
            wanted=f"at most {parts}, with embedding and loss as layers",
            do="take fewer",
        )


@lru_cache(maxsize=256)
def divisors(number: int) -> tuple[int, ...]:
    """The divisors, ascending.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    small = [size for size in range(1, int(number**0.5) + 1) if number % size == 0]
    return tuple(small + [number // size for size in reversed(small) if size * size != number])


class Space:
    """The axes' legal values; each method takes those that it depends on.

    `covered`: no experts without EP, no more of them on a rank and no ETP beyond what was measured, unless given.
    """

    def __init__(self, model: PlanModel, job: PlanJob, fixed: Fixed, covered: bool = False) -> None:
        self.model, self.job, self.fixed, self.covered = model, job, fixed, covered
        mcore = job.versions.get("mcore")
        self._has_layouts = mcore is None or at_least(mcore, MCORE_PIPELINE_LAYOUT)

    def _values(self, name: str, usual: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self.fixed[name],) if name in self.fixed else usual

    def attention(self) -> Iterator[Layout]:
        """TP, and CP with its type and level sizes: what attention sees."""
        world = self.job.world_size
        for tp in self._values("tp", tuple(size for size in divisors(world) if size <= MOST_TP)):
            if world % tp or all(world % (ep * etp) for ep, etp in self.experts(Layout(tp=tp))):
                continue
            for cp in self._values("cp", divisors(world // tp)):
                # A length that the ranks do not share is wrong with every type of CP, and every size of its levels.
                if world // tp % cp or any(wrong_lengths(Layout(tp=tp, cp=cp), self.job)):
                    continue
                for layout in self._types(tp, cp):
                    if self._is_legal(layout):
                        yield layout

    def _types(self, tp: int, cp: int) -> Iterator[Layout]:
        if cp == 1:
            if self.fixed.get("cp_comm_type", "p2p") == "p2p":
                yield Layout(tp=tp)
            return
        for kind in self._values("cp_comm_type", ("p2p", "a2a", "all_gather")):
            if kind != "a2a+p2p":
                yield Layout(tp=tp, cp=cp, cp_comm_type=kind)
        if self.fixed.get("cp_comm_type", "a2a+p2p") == "a2a+p2p":
            levels = tuple((inner, cp // inner) for inner in divisors(cp)[1:-1])
            for sizes in self._values("hcp_sizes", levels):
                yield Layout(tp=tp, cp=cp, cp_comm_type="a2a+p2p", hcp_sizes=sizes)

    def _is_legal(self, layout: Layout) -> bool:
        """Whether no rule forbids that much of a layout: in one stage, with a batch that divides.

        BATCH001 and CP003 depend on the micro-batch and are left to who chooses it.
        """
        return not set(forbidden(self.model, layout, self.job)) - {"BATCH001", "CP003"}

    def blocks_fit(self, cp: int, mbs: int) -> bool:
        """Whether a rank's tokens of a micro-batch fill the blocks of the precision."""
        return fp8_blocks_fit(cp, mbs, self.job)

    def pipelines(self, attention: Layout) -> Iterator[tuple[int, tuple[int, ...]]]:
        """PP, and the numbers of chunks of a stage that make the largest chunk smaller."""
        rest = self.job.world_size // (attention.tp * attention.cp)
        layers = self.model.sizes.num_layers
        work = layers + 2 + self.model.mtp
        for pp in self._values("pp", divisors(rest)):
            if rest % pp or pp > (work if "pp" in self.fixed else work - 2):  # a stage without layers, where asked
                continue
            chunks = {-(-work // (pp * vp)): vp for vp in range(work // pp, 0, -1)} if pp > 1 else {work: 1}
            usual = tuple(sorted(chunks.values()))
            if not self._has_layouts:  # fixed or not, such a release needs an even split
                usual = tuple(vp for vp in (divisors(layers) if pp > 1 else (1,)) if layers % (pp * vp) == 0)
            sizes = self._values("vp", usual)
            if self.model.mixers.pattern:
                sizes = tuple(vp for vp in sizes if self._stages_can_be_written(replace(attention, pp=pp, vp=vp)))
            yield pp, sizes

    def _stages_can_be_written(self, layout: Layout) -> bool:
        """Whether a model with a layer pattern can have these stages."""
        return "PIPE005" not in forbidden(self.model, layout, self.job)

    def experts(self, attention: Layout) -> Iterator[tuple[int, int]]:
        """EP and ETP; ETP is 1 or, as Megatron's default, TP."""
        experts = self.model.sizes.experts
        if not experts:
            yield 1, self.fixed.get("etp", 1)
            return
        split = attention.tp > 1 and not (self.covered and attention.tp > MEASURED_ETP)
        for etp in self._values("etp", (1, attention.tp) if split else (1,)):
            if self.model.sizes.moe_ffn % etp:
                continue
            least = max(2, -(-experts // MEASURED_EXPERTS)) if self.covered and experts > 1 else 1
            for ep in self._values("ep", tuple(size for size in divisors(experts) if size >= least)):
                if experts % ep == 0:
                    yield ep, etp

    def micro_batches(self) -> tuple[int, ...]:
        return self._values("mbs", tuple(size for size in MICRO_BATCHES if size <= self.job.global_batch))

    def recompute(self) -> tuple[str, ...]:
        return self._values("recompute", RECOMPUTE)

    def every(self, is_wanted: Callable[[Layout], bool] = lambda layout: True) -> Iterator[Layout]:
        """Each layout, one by one: what the search must find the best of."""
        for attention in self.attention():
            for pp, chunks in self.pipelines(attention):
                for vp in chunks:
                    for ep, etp in self.experts(attention):
                        for mbs in self.micro_batches():
                            for again in self.recompute():
                                layout = replace(attention, pp=pp, vp=vp, ep=ep, etp=etp, mbs=mbs, recompute=again)
                                if is_wanted(layout) and not forbidden(self.model, layout, self.job):
                                    yield layout
