"""Seconds of one layer and one micro-batch on one rank, forward and backward, by term."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from megatron_hcp.cost.cp_cost import CpTraffic, bytes_per_token, link_of
from megatron_hcp.cost.model_sizes import ModelSizes
from megatron_hcp.plan.constants import Rates
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.time.cp_passes import cp_passes
from megatron_hcp.plan.time.links import exchange_seconds, fits_inside, ranks_inside, ring_bandwidth
from megatron_hcp.plan.time.mixing import Mixing, compressed, delta_net, mamba
from megatron_hcp.plan.time.parts import TP_GATHERS, TP_SCATTERS, Front, LayerSeconds, Mlp, Units, joined
from megatron_hcp.plan.time.shapes import Product, attention_products, expert_products, mlp_products

KERNEL_S = 4e-6
"""Seconds before a matrix product starts, on top of its work."""
TILE = 128
"""Outputs are computed in whole tiles of so many."""
MLA_PASSES = 2
"""With latent attention only the rotary part of each head is turned: half the passes over queries and keys."""
ELEMENT_BYTES = {"bf16": 2.0, "fp8": 1.0, "mxfp8": 1 + 1 / 32, "nvfp4": 1 / 2 + 1 / 16}
"""Bytes of an element as products read it, with its scale: one for each 32 in MXFP8, for each 16 in NVFP4."""
TRANSPOSE = 2
"""Bytes of an element whose copy by column is made after it was gathered."""


def gemm_seconds(
    products: Iterable[Product], rates: Rates, peak: float, element_bytes: float, biased: bool = False
) -> float:  # fmt: skip
    """Seconds of the products, forward and backward: three products each, or the bytes they move if that is more.

    The rate of a product grows with its size x = (M N K)^(1/3) as x / (x + half_size): what a small product loses is
    time that lower precision does not shorten, so that half_size grows with the peak.
    """
    total = 0.0
    half_size = rates.half_size * peak / rates.bf16_flops
    for rows, outputs, width, experts in products:
        if not rows:
            continue
        count = max(1, experts)
        rate = peak * rates.grouped if experts else peak
        if experts and biased:
            rate *= rates.biased
        edge = (rows * outputs * width) ** (1 / 3)
        whole = TILE * -(-outputs // TILE)
        work = 2.0 * rows * whole * width * count / (rate * edge / (edge + half_size))
        operands = 3 * element_bytes * (rows * width + outputs * width) + 6 * rows * outputs + 4 * outputs * width
        total += max(3 * work, count * operands / rates.memory_bandwidth) + 3 * KERNEL_S
    return total


class Work:
    """What one micro-batch of a job takes on one rank, axis by axis, so that a search computes each part once.

    A part depends on the axes that its method's layout must have; pp and vp matter to none.
    """

    def __init__(self, model: PlanModel, job: PlanJob, rates: Rates) -> None:
        self.model, self.sizes, self.job, self.rates = model, model.sizes, job, rates
        self._element_bytes = ELEMENT_BYTES[job.precision]

    def tokens(self, layout: Layout) -> float:
        """Tokens of a micro-batch on a context-parallel rank."""
        return layout.mbs * self.job.seq_length / layout.cp

    def front(self, layout: Layout) -> Front:
        """Attention and norms; of tp, cp with its type and levels, mbs."""
        sizes, rates, tokens, tp = self.sizes, self.rates, self.tokens(layout), layout.tp
        forward = self._attention(layout)
        attention = forward * (1 + 2.5 / rates.attention_backward)
        heads = sizes.heads * sizes.qk_head_dim + sizes.kv_heads * (sizes.qk_head_dim + sizes.v_head_dim)
        turned = heads / MLA_PASSES if sizes.kv_lora else heads
        moved = self._norms(layout) + tokens * turned / tp * (2 * 3 + rates.cast_bytes)
        exposed, whole = self._cp(layout, attention)
        tp_s, hidden_tp = self._tp(layout)
        front = Front(
            self._gemm(attention_products(sizes, tokens, tp)), forward, attention, 3 * moved / rates.memory_bandwidth,
            tp_s, exposed + self._cp_copies(layout), hidden_tp, whole - exposed,
        )  # fmt: skip
        mixers = self.model.mixers
        if mixers.blocks:
            scan = mamba(mixers.blocks, sizes.hidden_size, tokens, tp)
            return self._mean_front(front, mixers.blocks.attention, [(scan, mixers.blocks.mamba)], layout)
        if own := mixers.compressed:
            again, length = "mla_up_proj" in self.job.modules_again(layout), self.job.seq_length
            kinds = Counter(own.ratios).items()
            mixed = [(compressed(own, ratio, sizes, tokens, length, again), count) for ratio, count in kinds]
            return self._mean_front(front, 0, mixed, layout)
        if nets := mixers.nets:
            each = delta_net(nets, sizes.hidden_size, tokens, self.job.seq_length, tp)
            return self._mean_front(front, sizes.num_layers - nets.layers, [(each, nets.layers)], layout)
        return front

    def _mean_front(self, attention: Front, plain: int, mixed: Iterable[tuple[Mixing, int]], layout: Layout) -> Front:
        """The mean over the layers: `plain` of attention, and so many of each other kind.

        A layer that is one block has half of the norms and collectives, and may mix no tokens at all.
        """
        rates, layers = self.rates, self.sizes.num_layers
        blocks = 2 if self.model.mixers.blocks else 1
        mean = Front(*(plain / layers * part for part in attention))
        for each, count in mixed:
            share = count / layers
            forward = each.flops / rates.attention_flops + each.chain_s / 3
            backward = each.backward_flops / rates.attention_flops / rates.attention_backward + 2 * each.chain_s / 3
            gemm = self._gemm(each.products) + gemm_seconds(each.plain, rates, rates.bf16_flops, 2.0)
            moved = each.moved + 3 * (self._norms(layout) / blocks + rates.cast_bytes * each.cast)
            mean = mean._replace(
                gemm=mean.gemm + share * gemm,
                forward_attention=mean.forward_attention + share * forward,
                attention=mean.attention + share * (forward + backward),
                memory_bound=mean.memory_bound + share * moved / rates.memory_bandwidth,
                unmeasured=mean.unmeasured + share * (forward + backward + each.moved / rates.memory_bandwidth),
            )
        return mean._replace(tp=attention.tp / blocks, hidden_tp=attention.hidden_tp / blocks)

    def _norms(self, layout: Layout) -> float:
        """Bytes of a layer's norms and residuals, forward, and of the casts of what its products read after them."""
        tokens, hidden, tp = self.tokens(layout), self.sizes.hidden_size, layout.tp
        return 2 * tokens * hidden * (10 / tp + self._gathered_cast(tp))

    def dense(self, layout: Layout, ffn: float | None = None) -> Mlp:
        """A dense MLP, or a shared expert of that width; of tp, cp, mbs."""
        tokens, rates = self.tokens(layout), self.rates
        width = (self.sizes.dense_ffn if ffn is None else ffn) / layout.tp
        blocks = self.model.mixers.blocks
        if not width or (blocks and not blocks.mlp and ffn is None):
            return Mlp(0.0, 0.0)
        moved = 2 * tokens * 3 * width + rates.cast_bytes * tokens * width
        # Of layers that are one block each, some without experts have an MLP.
        part = blocks.mlp / (blocks.attention + blocks.mamba + blocks.mlp) if blocks and ffn is None else 1.0
        gemm = self._gemm(mlp_products(self.sizes, tokens, width))
        return Mlp(part * gemm, part * 3 * moved / rates.memory_bandwidth)

    def experts(self, layout: Layout) -> Mlp:
        """Shared and routed experts with their exchange; of tp, cp, mbs, ep, etp."""
        sizes, rates, tokens, tp = self.sizes, self.rates, self.tokens(layout), layout.tp
        routed = tokens * sizes.topk / tp
        shared = self.dense(layout, sizes.shared_ffn)
        moved = routed * (12 * sizes.routed_hidden + 6 * sizes.moe_ffn) + 24 * tokens * sizes.experts / tp
        if self.model.linear_bias:  # biases and the clamped activation of the experts are not fused
            moved += routed * rates.bias_passes * (2 * sizes.routed_hidden + 6 * sizes.moe_ffn)
        moved += rates.cast_bytes * routed * (sizes.routed_hidden + sizes.moe_ffn)
        gemm = self._gemm(expert_products(sizes, routed, layout.ep, layout.etp))
        if latent := sizes.expert_hidden:  # whole on every rank, for its share of the tokens
            wide, share = sizes.hidden_size, tokens / tp
            gemm += self._gemm([Product(share, latent, wide), Product(share, wide, latent)])
        memory = 3 * moved / rates.memory_bandwidth
        return Mlp(shared.gemm + gemm, shared.memory_bound + memory, self._ep(layout, routed))

    def output(self, layout: Layout) -> LayerSeconds:
        """Output layer and loss: bf16 in all recipes; logits are read and written three times. Of tp, cp, mbs."""
        head = Product(self.tokens(layout), self.sizes.vocab / layout.tp, self.sizes.hidden_size)
        gemm = gemm_seconds([head], self.rates, self.rates.bf16_flops, 2.0)
        return LayerSeconds(gemm=gemm, memory_bound=12 * head.rows * head.outputs / self.rates.memory_bandwidth)

    def mtp(self, layout: Layout, output: LayerSeconds) -> LayerSeconds:
        """The projection of the two hidden states that it joins, and an output of its own."""
        hidden = self.sizes.hidden_size
        joins = self._gemm([Product(self.tokens(layout), hidden / layout.tp, 2 * hidden)])
        return output._replace(gemm=output.gemm + joins)

    def units(self, layout: Layout) -> Units:
        """All parts of one layout."""
        rates, front, nothing = self.rates, self.front(layout), LayerSeconds()
        is_moe, again, modules = self.model.is_moe, layout.recompute, self.job.modules_again(layout)
        dense = moe = nothing
        if not all(is_moe):
            dense = joined(front, self.dense(layout), again, rates.host_dense_s, modules=modules - {"moe"})
        if any(is_moe):
            mlp, held = self.experts(layout), self.sizes.experts // layout.ep
            ways = [
                joined(front, mlp, again, rates.host_s(way, held), way.exposed, modules - {"mlp"})
                for way in rates.exchanges
            ]
            moe = min(ways, key=lambda layer: layer.total)
        output = self.output(layout)
        mtp = self.mtp(layout, output) if self.model.mtp else nothing
        return Units(dense, moe, output, mtp, moe if is_moe[-1] else dense, front.unmeasured)

    def _gemm(self, products: Iterable[Product]) -> float:
        return gemm_seconds(products, self.rates, self.rates.gemm_flops, self._element_bytes, self.model.linear_bias)

    def _attention(self, layout: Layout) -> float:
        """Seconds of causal attention forward, the mean over layers: s^2 / 2 pairs of tokens, or those of a window."""
        sizes, length = self.sizes, self.job.seq_length
        pairs = [window * length - window * window / 2 for window in sizes.windows if window < length]
        mean = (sum(pairs) + (sizes.num_layers - len(pairs)) * length * length / 2) / sizes.num_layers
        flops = 2.0 * layout.mbs * mean * sizes.heads * (sizes.qk_head_dim + sizes.v_head_dim)
        rate = self.rates.attention_flops * (self.rates.attention_graphed if sizes.experts else 1.0)
        return flops / (layout.tp * layout.cp) / rate

    def _gathered_cast(self, tp: int) -> float:
        """Bytes of a cast for each element that TP gathers: a rank casts its own share, and Hopper transposes all."""
        cast = self.rates.cast_bytes
        if tp == 1 or not (cast and self.rates.transposes):
            return cast / tp
        return (cast - 1) / tp + TRANSPOSE

    def _tp(self, layout: Layout) -> tuple[float, float]:
        """(exposed, hidden) seconds; Transformer Engine's userbuffers overlap within one NVLink domain alone."""
        size, domain, rates = layout.tp, self.job.domain, self.rates
        if size == 1:
            return 0.0, 0.0
        each = self.tokens(layout) * self.sizes.hidden_size * (size - 1) / size
        element = sum(TP_GATHERS) * self._element_bytes + sum(TP_SCATTERS) * 2.0
        whole = element * each / ring_bandwidth(size, 1, domain, rates)
        exposed = whole * rates.tp_exposed * (rates.tp_overlapped if fits_inside(size, 1, domain) else 1.0)
        return exposed, whole - exposed

    def _cp_copies(self, layout: Layout) -> float:
        """Seconds in which context parallelism copies and adds up what it exchanges, forward and backward."""
        if layout.cp == 1:
            return 0.0
        sizes = self.sizes
        queries, out = sizes.heads * sizes.qk_head_dim, sizes.heads * sizes.v_head_dim
        keys = max(layout.tp, sizes.kv_heads) * (sizes.qk_head_dim + sizes.v_head_dim)
        passes = cp_passes(layout.cp_comm_type, layout.cp, ring_size(layout))
        moved = passes.queries * queries + passes.outputs * out + passes.keys * keys
        return 2 * self.tokens(layout) * moved / layout.tp / self.rates.memory_bandwidth

    def _ep(self, layout: Layout, routed: float) -> float:
        """Dispatch and combine, forward and backward; with expert tensor parallelism rows are gathered as well."""
        domain, each = self.job.domain, 2.0 * routed * self.sizes.routed_hidden
        once = self.job.sends_once
        time = exchange_seconds(each, self.sizes.topk, layout.ep, layout.etp, domain, self.rates, once is not False)
        if layout.etp > 1:
            time += each * (layout.etp - 1) / ring_bandwidth(layout.etp, 1, domain, self.rates)
        return 4 * time

    def _cp(self, layout: Layout, attention_s: float) -> tuple[float, float]:
        """(exposed, all) seconds of context parallelism, forward and backward."""
        domain, tokens = self.job.domain, self.tokens(layout)
        if layout.cp == 1:
            return 0.0, 0.0
        traffic = cp_traffic(self.sizes, layout, domain, self.rates)
        across = not fits_inside(layout.cp, layout.tp, domain)
        exposed = traffic.exposed_s(layout.cp, tokens, attention_s, across)
        return exposed, traffic.exposed_s(layout.cp, tokens, 0.0, across)


def ring_size(layout: Layout) -> int:
    """Steps of the attention kernel: one for each rank of a ring of keys and values."""
    if layout.cp_comm_type == "p2p":
        return layout.cp
    return layout.hcp_sizes[1] if layout.hcp_sizes else 1


def cp_traffic(sizes: ModelSizes, layout: Layout, domain: int, rates: Rates) -> CpTraffic:
    """How that layout's context parallelism communicates, with the links at what they sustain."""
    each = bytes_per_token(sizes.heads, sizes.kv_heads, sizes.qk_head_dim, sizes.v_head_dim, layout.tp)
    inner = layout.hcp_sizes[0] if layout.hcp_sizes else 1
    inside, across = link_of(each, rates.nvlink), link_of(each, rates.network)
    return CpTraffic(layout.cp_comm_type, inside, across, ranks_inside(layout.cp, layout.tp, domain), inner)
