"""The cost of a sequence: linear and quadratic work, and a price for spreading it over more ranks than it needs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from megatron_hcp.cost.cp_cost import CpTraffic, bytes_per_token, check_comm_type, link_of
from megatron_hcp.cost.gpus import (
    SUSTAINED_ATTENTION,
    SUSTAINED_GEMM,
    SUSTAINED_NETWORK,
    SUSTAINED_NVLINK,
    Gpu,
    gpu_named,
)  # fmt: skip
from megatron_hcp.cost.model_sizes import ModelSizes, assumed_sizes, model_sizes
from megatron_hcp.cost.profile import Profile
from megatron_hcp.ground.errors import HcpError

GEMM_PASSES, ATTENTION_PASSES = 3.0, 1 + 2.5 / 0.85
"""Forward plus backward, in forward passes: attention's backward has 2.5 times the operations at 0.85 of the rate."""
STEP_S = 1e-5
"""Seconds until the first byte of a ring step arrives, for one layer and pass; an assumption."""
LAYER_S = 1e-4
"""Seconds per layer that a micro-batch takes whatever its size, for kernel launches; an assumption."""
TIE = 0.02
"""Plans chosen by time: the price of each doubling of a group, as a fraction of the linear work, if times are equal."""


class Machine(NamedTuple):
    """Converts work to seconds."""

    basis: str
    """What the estimate is based on, for people: the model and the GPU, and whether they are assumed."""
    unit_s: float
    """Seconds that one rank takes for one unit of work, forward and backward."""
    traffic: CpTraffic
    """Communication of all layers that a rank holds."""
    micro_batch_s: float = 0.0
    """Seconds that each micro-batch takes in addition to its work."""


class GroupTime(NamedTuple):
    """Seconds of one group in one micro-batch, forward and backward."""

    compute_s: float
    exposed_s: float
    """Communication that attention doesn't hide."""

    @property
    def seconds(self) -> float:
        return self.compute_s + self.exposed_s


def machine_of(sizes: ModelSizes, gpu: Gpu, basis: str, unit_s: float = 1.0, **layout: Any) -> Machine:
    """The machine for a model on these GPUs; `layout` as in `Cost.from_model`."""
    tp, pp = layout.get("tp", 1), layout.get("pp", 1)
    hcp_sizes = layout.get("hcp_sizes")
    comm_type = layout.get("cp_comm_type", "p2p")
    inner = check_comm_type(comm_type, hcp_sizes)
    layers = sizes.num_layers / pp
    one = bytes_per_token(sizes.heads, sizes.kv_heads, sizes.qk_head_dim, sizes.v_head_dim, tp)
    each = one._replace(kv=one.kv * layers, qo=one.qo * layers)
    ranks_per_node = max(1, layout.get("gpus_per_node", 8) // tp)
    traffic = CpTraffic(
        comm_type,
        link_of(each, gpu.nvlink_bandwidth * SUSTAINED_NVLINK, 3 * STEP_S * layers),
        link_of(each, gpu.network_bandwidth * SUSTAINED_NETWORK, 3 * STEP_S * layers),
        ranks_per_node,
        inner,
    )
    return Machine(basis, unit_s, traffic, LAYER_S * layers)


LLAMA_7B = ModelSizes(32, 4096, 32, 32, 128, 128, 11008, 32, True, 32000)
ASSUMED = machine_of(
    LLAMA_7B, gpu_named("h100"), "a dense 7B on H100, 8 GPUs per node (assumed)",
    GEMM_PASSES * 32 * 4 * 4096 / (gpu_named("h100").bf16_flops * SUSTAINED_GEMM),
)  # fmt: skip
"""For the default numbers of `Cost`, whose unit is 4 * hidden operations of one of 32 layers, forward."""


class Cost(NamedTuple):
    """Work of one sequence of s tokens: `linear * s + quadratic * s**2`, divided evenly by the C ranks of its group.

    For planning, only the ratios matter. The default is the work of a dense 7B transformer layer, in units of 4 *
    hidden floating-point operations: 24 * hidden**2 per token and 4 * hidden per pair of tokens, hidden = 4096 (verl's
    `calculate_workload`, verl/utils/seqlen_balancing.py, has the same two numbers).

    `comm` is the price, per token, of each doubling of the group beyond the smallest that holds the sequence. If C_min
    ranks would do, C ranks cost `comm * s * log2(C / C_min)` more: exchange of keys and values, smaller pieces of work,
    more ranks waiting for each other. It is a price in the plan, not part of a group's time. The larger it is, the
    closer every sequence stays to C_min, and the less balanced the load is. By default a doubling costs 0.8 of the
    linear work; lab/dcp/grid.py shows the effect.

    `machine` says how many seconds that is, and what communication adds. With `by_time` the plan with the least
    estimated time is chosen; `comm` then only breaks ties. `from_model` and `from_profile` make such costs.
    """

    linear: float = 24576.0
    quadratic: float = 1.0
    comm: float = 19660.0
    windows: tuple[tuple[int, float], ...] = ()
    """Layers with a sliding window: its size in tokens, and their quadratic work below it."""
    machine: Machine = ASSUMED
    by_time: bool = False

    @classmethod
    def from_model(
        cls, sizes: ModelSizes, gpu: str | Gpu = "h100", *, tp: int = 1, pp: int = 1, gpus_per_node: int = 8,
        cp_comm_type: str = "p2p", hcp_sizes: tuple[int, int] | None = None,
    ) -> Cost:  # fmt: skip
        """Seconds of a model on one of these GPUs: GEMMs and attention at sustained rates, links at theirs.

        Args:
            sizes: the model, whole; a rank holds 1 / (tp * pp) of it.
            gpu: a name in `core.cost.gpus.GPUS`, or the figures themselves.
            tp: tensor-parallel size: ranks of DPxCP are tp GPUs apart, so that a node has gpus_per_node / tp of them.
            pp: pipeline-parallel size.
            gpus_per_node: GPUs connected by NVLink.
            cp_comm_type: p2p, a2a, all_gather, or a2a+p2p with hcp_sizes = (inner, outer).

        Raises:
            HcpError: an unknown GPU or communication type.
        """
        gpu = gpu_named(gpu) if isinstance(gpu, str) else gpu
        linear = GEMM_PASSES * sizes.linear_flops / (gpu.bf16_flops * SUSTAINED_GEMM * tp * pp)
        attention = ATTENTION_PASSES * sizes.attention_flops / (gpu.bf16_flops * SUSTAINED_ATTENTION * tp * pp)
        machine = machine_of(
            sizes, gpu, f"the model's sizes on {gpu.name}, {gpus_per_node} GPUs per node",
            tp=tp, pp=pp, gpus_per_node=gpus_per_node, cp_comm_type=cp_comm_type, hcp_sizes=hcp_sizes,
        )  # fmt: skip
        full = sizes.num_layers - len(sizes.windows)
        windows = {tokens: sizes.windows.count(tokens) * attention for tokens in sorted(set(sizes.windows))}
        return cls(linear, full * attention, TIE * linear, tuple(windows.items()), machine, True)

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], gpu: str | Gpu = "h100", **layout: Any) -> Cost:
        """As `from_model`, for a config.json, Megatron's arguments or a launch's facts, by name (see `model_sizes`).

        `layout` holds keywords of `from_model`; those it doesn't contain are read from the facts of the same name.
        """
        known = ("tp", "pp", "gpus_per_node", "cp_comm_type", "hcp_sizes")
        given = {name: facts[name] for name in known if facts.get(name) is not None}
        cost = cls.from_model(model_sizes(facts), gpu, **{**given, **layout})
        assumed = assumed_sizes(facts)
        if not assumed:
            return cost
        basis = f"{cost.machine.basis} (assumed: {', '.join(assumed)})"
        return cost._replace(machine=cost.machine._replace(basis=basis))

    @classmethod
    def from_profile(cls, profile: Profile) -> Cost:
        """Seconds as `hcp dcp calibrate` measured them."""
        one_node = profile.traffic.across == profile.traffic.inside
        basis = f"measured on {profile.device}" + (" (between nodes: assumed as inside one)" if one_node else "")
        machine = Machine(basis, 1.0, profile.traffic, profile.micro_batch_s)
        linear, quadratic = profile.linear_s, profile.quadratic_s
        return cls(linear, quadratic, TIE * linear, (), machine, True)

    def attention(self, length: int) -> float:
        """The work that grows faster than the length; it hides a ring's communication.

        A window of w tokens saves (s - w)**2 of s**2.
        """
        work = self.quadratic * length * length
        for tokens, coefficient in self.windows:
            outside = max(0, length - tokens)
            work += coefficient * (length * length - outside * outside)
        return work

    def work(self, length: int) -> float:
        """Work of one sequence over all ranks of its group.

        >>> Cost().work(1024)
        26214400.0
        """
        if self.windows:
            return self.linear * length + self.attention(length)
        return (self.linear + self.quadratic * length) * length

    def group_time(self, size: int, lengths: Sequence[int], across: bool) -> GroupTime:
        """Seconds of a group of `size` ranks with these sequences; `across`: it has ranks on several nodes."""
        unit = self.machine.unit_s
        compute = sum(map(self.work, lengths)) * unit / size
        attention = sum(map(self.attention, lengths)) * unit / size
        return GroupTime(compute, self.machine.traffic.exposed_s(size, sum(lengths) / size, attention, across))


DEFAULT_COST = Cost()
NUMBERS = ("linear", "quadratic", "comm")
LEAST_COST, MOST_COST = 1e-30, 1e30
"""With less (but 0) or more, products of work would leave the range of floating point."""


def parse_cost(text: str) -> Cost:
    """A `Cost` from `linear=24576,quadratic=1,comm=9216`; what isn't named keeps its default.

    Raises HcpError for an unknown name, a name given twice, or a value that isn't 0 or a number from LEAST_COST to
    MOST_COST; also if linear and quadratic are both 0, because no sequence would then cost anything.

    >>> parse_cost("comm=0").comm
    0.0
    """
    wanted = ", ".join(NUMBERS)
    values: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, number = (word.strip() for word in part.partition("="))
        if name not in NUMBERS or not equals:
            raise HcpError(f"cost: found {part!r}", wanted=f"NAME=NUMBER with NAME one of {wanted}")
        if name in values:
            raise HcpError(f"cost: {name} is given twice", do="give it once")
        values[name] = _number(name, number)
    cost = Cost(*[values.get(name, getattr(DEFAULT_COST, name)) for name in NUMBERS])
    if cost.linear == 0 and cost.quadratic == 0:
        raise HcpError("cost: linear and quadratic are both 0, so no sequence costs anything", do="raise one of them")
    return cost


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if value != 0 and not LEAST_COST <= value <= MOST_COST:
        raise HcpError(f"cost: found {name}={text!r}", wanted=f"0, or a number from {LEAST_COST:g} to {MOST_COST:g}")
    return value


ASSUMED_COST = Cost.from_model(LLAMA_7B)
ASSUMED_COST = ASSUMED_COST._replace(machine=ASSUMED_COST.machine._replace(basis=ASSUMED.basis))
"""If no model is given: plans by the estimated time of the assumed one."""
