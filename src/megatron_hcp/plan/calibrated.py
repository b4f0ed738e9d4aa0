"""A measured profile in place of fitted constants: several of them, each drawn to what was measured."""

from __future__ import annotations

from dataclasses import replace

from megatron_hcp.cost.cp_cost import A2A_PASSES, RING_PASSES, Link, bytes_per_token
from megatron_hcp.cost.profile import read_profile
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.plan.constants import Rates
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.time.layer import Work

TRUST = 0.8
"""How far a measured rate replaces the fitted one, in logarithms: a profile is one run of one size."""
MOST_FACTOR = 4.0
"""A profile that says more than this differs from the model's GPU is of another model, layout or machine."""


def profiled(rates: Rates, path: str, model: PlanModel, job: PlanJob) -> tuple[Rates, str]:
    """The rates with matrix products, attention and links as measured, and a line that says so.

    Raises:
        HcpError: the profile cannot be read, or is not of this model.
    """
    profile = read_profile(path)
    measured = profile.measured
    tp, pp = _size(measured.get("tp")), _size(measured.get("pp"))
    layers = model.sizes.num_layers / pp
    layout, one = Layout(tp=tp), replace(job, seq_length=8192)
    work = Work(model, one, rates)
    parts = work.units(layout)
    layer = parts.moe if model.is_moe[-1] else parts.dense
    linear = profile.linear_s * one.seq_length / layers
    square = profile.quadratic_s * one.seq_length**2 / layers
    changed = rates
    if linear:
        factor = _factor((layer.gemm + layer.memory_bound) / linear, "linear_s", path)
        changed = replace(
            changed, gemm_flops=rates.gemm_flops * factor, memory_bandwidth=rates.memory_bandwidth * factor
        )
    if square:
        factor = _factor(layer.attention / square, "quadratic_s", path)
        changed = replace(changed, attention_flops=rates.attention_flops * factor)
    sizes = model.sizes
    each = bytes_per_token(sizes.heads, sizes.kv_heads, sizes.qk_head_dim, sizes.v_head_dim, tp)
    traffic = profile.traffic
    near = _bandwidth(traffic.inside, each.kv, each.kv + each.qo, layers)
    far = _bandwidth(traffic.across, each.kv, each.kv + each.qo, layers)
    if near:
        changed = replace(changed, nvlink=near)
    if far and traffic.across != traffic.inside:
        changed = replace(changed, network=far)
    return changed, f"rates of matrix products, attention and links as {profile.device} was measured"


def _factor(ratio: float, name: str, path: str) -> float:
    if not 1 / MOST_FACTOR <= ratio <= MOST_FACTOR:
        raise HcpError(
            f"{path}: its {name} is {1 / ratio:.2g} times what this model takes on this GPU",
            wanted="a profile of this model",
            do="measure it: hcp dcp calibrate",
        )
    return float(ratio**TRUST)


def _bandwidth(link: Link, kv: float, whole: float, layers: float) -> float:
    """Bytes per second behind a measured link of all layers."""
    if link.kv_s:
        return RING_PASSES * kv * layers / link.kv_s
    return A2A_PASSES * whole * layers / link.a2a_s if link.a2a_s else 0.0


def _size(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 1
