"""The measured constants of the time model: what each is, where it comes from, and how sure it is.

`python lab plan/fit --write` fits the values tagged "fitted" to published steps and prints how well they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from megatron_hcp.core.releases import at_least
from megatron_hcp.cost.gpus import SUSTAINED_NETWORK, SUSTAINED_NVLINK, Gpu
from megatron_hcp.plan.constants_fitted import FITTED
from megatron_hcp.plan.layout import PlanJob

_BRIDGE = "Megatron-Bridge's published steps"
EVIDENCE: dict[str, tuple[str, str, str]] = {
    "gemm.bf16": ("of the bf16 peak", "fitted", _BRIDGE),
    "gemm.bf16.hopper": (
        "of the bf16 peak, before Blackwell",
        "assumed",
        "no step is given; 8 of 12 products alone reach 0.62 to 0.78 on an H200, small ones 0.27 and more: gemm of "
        "lab/results/gpu_day_h200.json",
    ),
    "gemm.fp8": ("of the fp8 peak", "fitted", _BRIDGE),
    "gemm.mxfp8": ("of the fp8 peak", "fitted", _BRIDGE),
    "gemm.nvfp4": ("of the fp4 peak", "fitted", _BRIDGE),
    "gemm.half_size": ("of 4096: edge of a cube at half the bf16 rate", "fitted", _BRIDGE),
    "gemm.grouped.bf16": ("of a plain GEMM's rate", "fitted", _BRIDGE),
    "gemm.grouped.fp8": ("of a plain GEMM's rate", "fitted", _BRIDGE),
    "gemm.grouped.mxfp8": ("of a plain GEMM's rate", "fitted", _BRIDGE),
    "gemm.biased": ("of the grouped rate, of experts with biases", "fitted", _BRIDGE),
    "casts.nvfp4": ("times the bytes of casts to fp8", "fitted", _BRIDGE),
    "attention.hopper": ("of the bf16 peak, forward", "fitted", "NeMo's long sequences, H100"),
    "attention.blackwell": ("of the bf16 peak, forward", "fitted", "SimuMax's B200 box"),
    "attention.graphed": ("times that rate, where Bridge 0.5's recipes take FP8", "fitted", _BRIDGE),
    "attention.backward": ("of the forward rate", "read", "FlashAttention-3, table of forward and backward rates"),
    "bias.passes": ("times that experts' biases and clamps pass over their rows", "fitted", _BRIDGE),
    "bandwidth": ("of the memory bandwidth", "fitted", _BRIDGE),
    "tp.exposed": ("of the time of TP's collectives", "fitted", "NeMo's long sequences; SimuMax's B200 box"),
    "tp.overlapped": ("of tp.exposed, where TP's collectives are overlapped", "fitted", _BRIDGE),
    "ep.exposed": ("times EP's exchange at what links sustain; above 1 where it is slower", "fitted", _BRIDGE),
    "ep.overlapped": ("of ep.exposed, where EP's exchange is overlapped", "fitted", _BRIDGE),
    "dp.exposed": ("of the time of DP's collectives", "fitted", _BRIDGE),
    "host.dense": ("s a layer, forward and backward, at least", "assumed", "no row is slowed by it"),
    "host.moe": ("s a layer, forward and backward, at least", "assumed", "no row is slowed by it alone"),
    "host.expert": ("s more for each start of a kernel of the rank's experts", "fitted", _BRIDGE),
    "margin.scale": ("times the margin by terms", "fitted", "nine of ten steps of a model and GPU left out"),
    "margin.gpu": ("times that, on a GPU without a measured step", "fitted", "nine of ten steps of a GPU left out"),
    "host.overlap": ("of host.expert more where EP's exchange is overlapped", "fitted", _BRIDGE),
}
"""Each constant but gpu.NAME, which is the part of the common rates that a GPU reaches: its unit; whether it is fitted
to published steps, read in a source, or assumed, where nothing here measures it; and its origin."""

FP8_OVER_BF16 = 2.0
FP4_OVER_BF16 = {"b200": 4.0, "gb200": 4.0, "b300": 6.0, "gb300": 6.0}
"""The peak of NVFP4 over that of bf16, by GPU; others have none. Source: NVIDIA's data sheets, dense."""
BLACKWELL = ("b200", "b300", "gb200", "gb300")
GROUPED_AS = {"nvfp4": "mxfp8"}
"""Precisions of grouped products that share a constant: the given steps do not tell these two apart."""
GRAPHED_SINCE = ("bridge", "0.5")
GRAPHED_PRECISIONS = ("mxfp8", "nvfp4")
"""From that release on Bridge's recipes of MoE models in these precisions on Blackwell run whole iterations as one CUDA
graph, with EP's exchange overlapped and attention in FP8.
Source: _enable_hybridep_full_iteration_mxfp8, perf_recipes/qwen/common.py of Megatron-Bridge, and its like."""


CAST_BYTES = {"bf16": 0.0, "mxfp8": 4.0, "fp8": 6.0, "nvfp4": 4.0}
"""A cast reads 2 bytes and writes one by row and one by column; fp8 by tensor reads 2 before it, for the largest."""
STARTS = {"bf16": 12, "mxfp8": 16, "fp8": 24, "nvfp4": 24}
"""Starts of an expert's kernels, forward and backward: two for each of its six products, as cuBLAS is asked for the
best kernel each time, and for each of its four operands a cast, in fp8 and NVFP4 the largest element and its scale too.
Source: GroupedLinear and split_quantize of Transformer Engine 2.20.2; docs/plan.md has what was measured afterwards."""


class Exchange(NamedTuple):
    """A way in which EP's exchange runs: alone, or beside other work."""

    exposed: float
    """Times its time at what links sustain."""
    host_s: float
    """Seconds of an MoE layer, forward and backward, in which the host starts kernels, without those of experts."""
    host_expert_s: float
    """Seconds more for each expert of the rank."""


@dataclass(frozen=True)
class Rates:
    """What one GPU sustains: operations and bytes per second, and shares that communication leaves exposed."""

    gemm_flops: float
    bf16_flops: float
    grouped: float
    biased: float
    """Of `grouped`, of experts whose linear layers have biases."""
    half_size: float
    attention_flops: float
    attention_graphed: float
    """Times that rate, of models with experts: their recipes alone take FP8 for it."""
    attention_backward: float
    memory_bandwidth: float
    nvlink: float
    network: float
    tp_exposed: float
    tp_overlapped: float
    """Of `tp_exposed`, where one NVLink domain has all ranks of the group; 1 where nothing overlaps them."""
    exchanges: tuple[Exchange, ...]
    """How EP's exchange may run; a layer takes the way that is faster for it."""
    alone: Exchange
    """How it runs in a layout that megatron-core refuses to overlap it in."""
    dp_exposed: float
    bias_passes: float
    host_dense_s: float
    cast_bytes: float
    """Of an element that linear layers read in 8 bits or fewer, with copies by row and by column; 0 with bf16."""
    transposes: bool
    """Products of 8 bits take both operands by row alone, as Hopper's do."""
    margin_scale: float = 1.0
    """Times the margin that follows from the terms' own: see `margin` of plan/time."""
    is_release_open: bool = False
    """Nobody says whether models with experts run as in the recipes since `GRAPHED_SINCE`, which take a third less."""
    marks: tuple[str, ...] = ()

    def host_s(self, exchange: Exchange, experts: int) -> float:
        """Seconds that the host takes at least to start the kernels of an MoE layer with so many experts on a rank."""
        return exchange.host_s + exchange.host_expert_s * experts

    @cached_property
    def apart(self) -> Rates:
        """Those of a layout in which nothing overlaps EP's exchange."""
        return replace(self, exchanges=(self.alone,))


def rates_of(
    gpu: Gpu, precision: str, versions: Mapping[str, str], values: Mapping[str, float] | None = None,
    overlaps_ep: bool | None = None, whole_graph: bool | None = None, overlaps_tp: bool = False,
    delays_wgrad: bool = True,
) -> Rates:  # fmt: skip
    """The rates of that GPU and precision.

    Args:
        values: replace fitted constants by name.
        overlaps_ep: whether EP's exchange runs beside other work; None: as Bridge's recipes have it, on Hopper where
            that is faster, on Blackwell as in those of the stated release.
        whole_graph: whether a whole iteration is one CUDA graph, which leaves the host nothing to start; None: as
            Bridge's recipes have it.
        overlaps_tp: whether TP's collectives run beside matrix products.
        delays_wgrad: whether experts' weight gradients are started apart where EP's exchange is overlapped.
    """
    value = {**FITTED, **(values or {})}
    marks = []
    part = value.get(f"gpu.{gpu.name}")
    if part is None:
        part = 1.0
        marks.append(f"no step on {gpu.name} was measured")
    peak = gpu.bf16_flops * {"bf16": 1.0, "nvfp4": FP4_OVER_BF16.get(gpu.name, FP8_OVER_BF16)}.get(
        precision, FP8_OVER_BF16
    )
    blackwell = gpu.name in BLACKWELL
    family = "blackwell" if blackwell else "hopper"
    gemm = "gemm.bf16" if blackwell else "gemm.bf16.hopper"
    package, since = GRAPHED_SINCE
    graphed = (
        blackwell and precision in GRAPHED_PRECISIONS and package in versions and at_least(versions[package], since)
    )
    is_open = blackwell and precision in GRAPHED_PRECISIONS and package not in versions
    graphed = graphed and overlaps_ep is not False and whole_graph is not False
    if overlaps_ep is None:
        ways = (graphed,) if blackwell else (False, True)
    else:
        ways = (overlaps_ep,)
    starts = 0.0 if graphed or whole_graph else 1.0
    return Rates(
        gemm_flops=peak * value[gemm if precision == "bf16" else f"gemm.{precision}"] * part,
        bf16_flops=gpu.bf16_flops * value[gemm] * part,
        grouped=value[f"gemm.grouped.{GROUPED_AS.get(precision, precision)}"],
        biased=value["gemm.biased"],
        half_size=4096 * value["gemm.half_size"],
        bias_passes=value["bias.passes"],
        attention_flops=gpu.bf16_flops * value[f"attention.{family}"] * part,
        attention_graphed=value["attention.graphed"] if graphed else 1.0,
        attention_backward=value["attention.backward"],
        memory_bandwidth=gpu.memory_bandwidth * value["bandwidth"],
        nvlink=gpu.nvlink_bandwidth * SUSTAINED_NVLINK,
        network=gpu.network_bandwidth * SUSTAINED_NETWORK,
        tp_exposed=value["tp.exposed"],
        tp_overlapped=value["tp.overlapped"] if overlaps_tp else 1.0,
        exchanges=tuple(_exchange(value, beside, starts * STARTS[precision], delays_wgrad) for beside in ways),
        alone=_exchange(value, False, starts * STARTS[precision], False),
        dp_exposed=value["dp.exposed"],
        host_dense_s=starts * value["host.dense"],
        cast_bytes=CAST_BYTES[precision] * (value["casts.nvfp4"] if precision == "nvfp4" else 1.0),
        transposes=not blackwell,
        margin_scale=value["margin.scale"] * (value["margin.gpu"] if marks else 1.0),
        is_release_open=is_open and overlaps_ep is None and whole_graph is None,
        marks=tuple(marks),
    )


def _exchange(value: Mapping[str, float], beside: bool, starts: float, delays_wgrad: bool) -> Exchange:
    """EP's exchange beside other work, or alone; `starts`: 0 where the host starts nothing.

    Beside other work the experts' weight gradients may be started apart (delay_wgrad_compute): then each expert has
    more to start.
    """
    more = 1 + value["host.overlap"] if beside and delays_wgrad else 1.0
    exposed = value["ep.exposed"] * (value["ep.overlapped"] if beside else 1.0)
    return Exchange(exposed, value["host.moe"] * bool(starts), starts * value["host.expert"] * more)


def rates_for(job: PlanJob, values: Mapping[str, float] | None = None) -> Rates:
    """The rates of that job; `values` replace fitted constants by name."""
    return rates_of(
        job.gpu, job.precision, job.versions, values, job.overlaps_ep, job.whole_graph, job.has_userbuffers,
        job.delays_wgrad is not False,
    )  # fmt: skip
