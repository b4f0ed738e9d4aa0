"""Seconds of one layer and one micro-batch on one rank, forward and backward, by term."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hcp.core.cost.cp_cost import CpTraffic, bytes_per_token, link_of
from hcp.core.cost.model_sizes import ModelSizes
from hcp.plan.constants import Rates
from hcp.plan.layout import Layout, PlanJob
from hcp.plan.model import PlanModel
from hcp.plan.time.links import exchange_seconds, ring_bandwidth
from hcp.plan.time.shapes import Product, attention_products, expert_products, mlp_products

KERNEL_S = 4e-6
"""Seconds before a matrix product starts, on top of its work."""
TILE = 128
"""Outputs and widths that are no multiple of it leave tiles of the tensor cores partly empty."""
MLA_PASSES = 2
"""With latent attention only the rotary part of each head is turned: half the passes over queries and keys."""
TP_FORWARD, TP_BACKWARD = 4, 6
"""Collectives of a layer with sequence parallelism; the backward pass gathers the inputs of the wgrads again."""


class LayerSeconds(NamedTuple):
    """A layer's time by term; `hidden_*`: communication that other work hides."""

    gemm: float = 0.0
    attention: float = 0.0
    memory_bound: float = 0.0
    tp: float = 0.0
    ep: float = 0.0
    cp: float = 0.0
    recompute: float = 0.0
    host: float = 0.0
    hidden_tp: float = 0.0
    hidden_ep: float = 0.0
    hidden_cp: float = 0.0

    @property
    def total(self) -> float:
        return sum(self[:8])


class Units(NamedTuple):
    """What a micro-batch takes on a rank, part by part, and the weights that the rank holds of each."""

    dense: LayerSeconds
    moe: LayerSeconds
    output: LayerSeconds
    mtp: LayerSeconds
    """One multi-token-prediction layer without its transformer layer: its projection and its own output."""
    dense_weights: float
    moe_weights: float
    expert_weights: float
    vocab_weights: float


def gemm_seconds(products: Iterable[Product], rates: Rates, peak: float, element_bytes: float) -> float:
    """Seconds of the products, forward and backward: three products each, or the bytes they move if that is more.

    The rate of a product grows with its size x = (M N K)^(1/3) as x / (x + half_size).
    """
    total = 0.0
    half_size = rates.half_size * (peak / rates.bf16_flops) ** rates.half_size_growth
    for rows, outputs, width, experts in products:
        if not rows:
            continue
        count, rate = (experts, peak * rates.grouped) if experts else (1, peak)
        if outputs % TILE or width % TILE:
            rate *= rates.unaligned
        edge = (rows * outputs * width) ** (1 / 3)
        work = 2.0 * rows * outputs * width * count / (rate * edge / (edge + half_size))
        operands = 3 * element_bytes * (rows * width + outputs * width) + 6 * rows * outputs + 4 * outputs * width
        total += max(3 * work, count * operands / rates.memory_bandwidth) + 3 * KERNEL_S
    return total


def units(model: PlanModel, layout: Layout, job: PlanJob, rates: Rates) -> Units:
    """What one micro-batch takes on one rank under that layout; pp and vp do not matter here."""
    sizes, tp = model.sizes, layout.tp
    tokens = layout.mbs * job.seq_length / layout.cp
    attention = list(attention_products(sizes, tokens, tp))
    dense_mlp = list(mlp_products(sizes, tokens, sizes.dense_ffn / tp))
    routed = tokens * sizes.topk / tp
    shared = list(mlp_products(sizes, tokens, sizes.shared_ffn / tp)) if sizes.shared_ffn else []
    experts = list(expert_products(sizes, routed, layout.ep, layout.etp)) if sizes.experts else []
    parts = _Parts(model, layout, job, rates, tokens)
    dense = moe = LayerSeconds()
    if not all(model.is_moe):
        dense = parts.layer([*attention, *dense_mlp], sizes.dense_ffn / tp, 0.0)
    if any(model.is_moe):
        moe = parts.layer([*attention, *shared, *experts], sizes.shared_ffn / tp, routed)
    output = parts.output()
    return Units(
        dense, moe, output, parts.mtp(output) if model.mtp else LayerSeconds(),
        dense_weights=_weights([*attention, *dense_mlp]),
        moe_weights=_weights([*attention, *shared]) + sizes.hidden_size * sizes.experts,
        expert_weights=_weights(experts), vocab_weights=sizes.vocab * sizes.hidden_size / tp,
    )  # fmt: skip


def _weights(products: Iterable[Product]) -> float:
    return sum(product.weights for product in products)


class _Parts:
    """The terms of layers that have the same tokens, links and rates."""

    def __init__(self, model: PlanModel, layout: Layout, job: PlanJob, rates: Rates, tokens: float) -> None:
        self.sizes, self.layout, self.job, self.rates, self.tokens = model.sizes, layout, job, rates, tokens
        self.biased = model.linear_bias
        self.forward_attention_s = self._attention()

    def layer(self, products: list[Product], ffn: float, routed: float) -> LayerSeconds:
        """A layer with those products; `ffn`: its dense width on this rank, `routed`: rows that leave for experts."""
        rates = self.rates
        gemm = gemm_seconds(products, rates, rates.gemm_flops, 1.0 if rates.casts else 2.0)
        forward = self.forward_attention_s
        attention = forward * (1 + 2.5 / rates.attention_backward)
        memory = self._memory_bound(ffn, routed)
        tp, ep = self._tp(), self._ep(routed)
        cp_exposed, cp_all = self._cp(attention)
        tp_exposed, ep_exposed = tp * rates.tp_exposed, ep * rates.ep_exposed
        again = 0.0
        if self.layout.recompute == "selective":
            again = forward + cp_exposed / 3
        elif self.layout.recompute == "full":
            share = TP_FORWARD / (TP_FORWARD + TP_BACKWARD)
            again = gemm / 3 + forward + memory / 3 + tp_exposed * share + ep_exposed / 2 + cp_exposed / 3
        busy = gemm + attention + memory + tp_exposed + ep_exposed + cp_exposed + again
        floor = rates.host_moe_s if routed else rates.host_dense_s
        return LayerSeconds(
            gemm, attention, memory, tp_exposed, ep_exposed, cp_exposed, again, max(0.0, floor - busy),
            tp - tp_exposed, ep - ep_exposed, cp_all - cp_exposed,
        )  # fmt: skip

    def output(self) -> LayerSeconds:
        """The last norm, the output layer and the loss: bf16 in all recipes; logits are read and written three times."""
        sizes, rates = self.sizes, self.rates
        head = Product(self.tokens, sizes.vocab / self.layout.tp, sizes.hidden_size)
        gemm = gemm_seconds([head], rates, rates.bf16_flops, 2.0)
        logits = 2.0 * head.rows * head.outputs
        return LayerSeconds(gemm=gemm, memory_bound=3 * 2 * logits / rates.memory_bandwidth)

    def mtp(self, output: LayerSeconds) -> LayerSeconds:
        """The projection of the two hidden states that it joins, and its own output."""
        hidden = self.sizes.hidden_size
        joined = Product(self.tokens, hidden / self.layout.tp, 2 * hidden)
        gemm = gemm_seconds([joined], self.rates, self.rates.gemm_flops, 1.0 if self.rates.casts else 2.0)
        return output._replace(gemm=output.gemm + gemm)

    def _attention(self) -> float:
        """Seconds of causal attention forward, the mean over layers: s^2 / 2 pairs of tokens, or those of a window."""
        sizes, layout, length = self.sizes, self.layout, self.job.seq_length
        pairs = [window * length - window * window / 2 for window in sizes.windows if window < length]
        mean = (sum(pairs) + (sizes.num_layers - len(pairs)) * length * length / 2) / sizes.num_layers
        flops = 2.0 * layout.mbs * mean * sizes.heads * (sizes.qk_head_dim + sizes.v_head_dim)
        return flops / (layout.tp * layout.cp) / self.rates.attention_flops

    def _memory_bound(self, ffn: float, routed: float) -> float:
        """Norms, residuals, rotary embedding, activation, casts: bytes forward, and twice as many backward."""
        sizes, tokens, tp, rates = self.sizes, self.tokens, self.layout.tp, self.rates
        heads = sizes.heads * sizes.qk_head_dim + sizes.kv_heads * (sizes.qk_head_dim + sizes.v_head_dim)
        if sizes.kv_lora:  # only the rotary part of each head is turned
            heads /= MLA_PASSES
        moved = 2 * tokens * (10 * sizes.hidden_size / tp + 3 * heads / tp + 3 * ffn)
        if routed:
            moved += routed * (12 * sizes.hidden_size + 6 * sizes.moe_ffn) + 24 * tokens * sizes.experts / tp
            if self.biased:  # biases and the clamped activation of the experts are not fused
                moved += routed * rates.bias_passes * (2 * sizes.hidden_size + 6 * sizes.moe_ffn)
        if rates.casts:  # each input of a linear layer is read in bf16 and written twice, as rows and as columns
            inputs = 2 * sizes.hidden_size + heads / tp + ffn
            moved += rates.casts * 4 * (tokens * inputs + routed * (sizes.hidden_size + sizes.moe_ffn))
        return 3 * moved / rates.memory_bandwidth

    def _tp(self) -> float:
        size = self.layout.tp
        if size == 1:
            return 0.0
        each = 2.0 * self.tokens * self.sizes.hidden_size * (size - 1) / size
        return (TP_FORWARD + TP_BACKWARD) * each / ring_bandwidth(size, 1, self.job.nvlink_domain, self.rates)

    def _ep(self, routed: float) -> float:
        """Dispatch and combine, forward and backward; with expert tensor parallelism rows are gathered as well."""
        layout, domain = self.layout, self.job.nvlink_domain
        if not routed:
            return 0.0
        each = 2.0 * routed * self.sizes.hidden_size
        time = exchange_seconds(each, self.sizes.topk, layout.ep, layout.etp, domain, self.rates)
        if layout.etp > 1:
            time += each * (layout.etp - 1) / ring_bandwidth(layout.etp, 1, domain, self.rates)
        return 4 * time

    def _cp(self, attention_s: float) -> tuple[float, float]:
        """(exposed, all) seconds of context parallelism, forward and backward."""
        layout, sizes, domain = self.layout, self.sizes, self.job.nvlink_domain
        if layout.cp == 1:
            return 0.0, 0.0
        traffic = cp_traffic(sizes, layout, domain, self.rates)
        across = layout.tp * layout.cp > domain
        exposed = traffic.exposed_s(layout.cp, self.tokens, attention_s, across)
        return exposed, traffic.exposed_s(layout.cp, self.tokens, 0.0, across)


def cp_traffic(sizes: ModelSizes, layout: Layout, domain: int, rates: Rates) -> CpTraffic:
    """How that layout's context parallelism communicates, with the links at what they sustain."""
    each = bytes_per_token(sizes.heads, sizes.kv_heads, sizes.qk_head_dim, sizes.v_head_dim, layout.tp)
    inner = layout.hcp_sizes[0] if layout.hcp_sizes else 1
    inside, across = link_of(each, rates.nvlink), link_of(each, rates.network)
    return CpTraffic(layout.cp_comm_type, inside, across, max(1, domain // layout.tp), inner)
