"""The matrix products of a layer, and the weights behind them, on one rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from megatron_hcp.cost.model_sizes import ModelSizes
from megatron_hcp.plan.layout import Layout
from megatron_hcp.plan.model import PlanModel


class Product(NamedTuple):
    """One linear layer on one rank: `rows` tokens from `width` to `outputs` features; `experts` of them in a group."""

    rows: float
    outputs: float
    width: float
    experts: int = 0

    @property
    def flops(self) -> float:
        """Operations of the forward pass; each of the two products of the backward pass has as many."""
        return 2.0 * self.rows * self.outputs * self.width * max(1, self.experts)

    @property
    def weights(self) -> float:
        """Elements of its weights."""
        return self.outputs * self.width * max(1, self.experts)


class RankElements(NamedTuple):
    """Elements of the linear layers that a rank holds: of a dense layer, of an MoE layer without and with experts."""

    dense: float
    moe: float
    expert: float
    vocab: float


def attention_products(sizes: ModelSizes, tokens: float, tp: int) -> Iterator[Product]:
    """The projections of attention for so many tokens, tensor-parallel over heads."""
    hidden, heads = sizes.hidden_size, sizes.heads / tp
    queries, values = heads * sizes.qk_head_dim, heads * sizes.v_head_dim
    if not sizes.kv_lora:
        kv = max(1.0, sizes.kv_heads / tp) * (sizes.qk_head_dim + sizes.v_head_dim)
        yield Product(tokens, queries + kv, hidden)
    else:
        if sizes.q_lora:  # the down-projections are whole on every rank
            yield Product(tokens / tp, sizes.q_lora, hidden)
        yield Product(tokens, queries, sizes.q_lora or hidden)
        yield Product(tokens / tp, sizes.kv_lora + sizes.qk_rope, hidden)
        yield Product(tokens, heads * (sizes.qk_head_dim - sizes.qk_rope + sizes.v_head_dim), sizes.kv_lora)
    yield Product(tokens, hidden, values)


def mlp_products(sizes: ModelSizes, tokens: float, ffn: float) -> Iterator[Product]:
    """A dense or shared MLP of that width on this rank."""
    yield Product(tokens, ffn * (2 if sizes.gated else 1), sizes.hidden_size)
    yield Product(tokens, sizes.hidden_size, ffn)


def expert_products(sizes: ModelSizes, routed: float, ep: int, etp: int) -> Iterator[Product]:
    """The experts of this rank, whose rows are spread evenly; `routed` rows leave each rank."""
    local = max(1, sizes.experts // ep)
    rows, width = routed * etp / local, sizes.moe_ffn / etp
    yield Product(rows, width * (2 if sizes.gated else 1), sizes.routed_hidden, local)
    yield Product(rows, sizes.routed_hidden, width, local)


def weights_of(model: PlanModel, layout: Layout) -> RankElements:
    """Elements that a rank holds of each layer; of tp, ep, etp."""
    sizes, tp = model.sizes, layout.tp
    attention = _elements(attention_products(sizes, 1, tp))
    mlp = _elements(mlp_products(sizes, 1, sizes.dense_ffn / tp))
    if blocks := model.mixers.blocks:
        mamba = sizes.hidden_size * (blocks.mamba_in + blocks.mamba_inner) / tp
        attention = (blocks.attention * attention + blocks.mamba * mamba) / blocks.layers
        mlp *= blocks.mlp / max(1, blocks.attention + blocks.mamba + blocks.mlp)
    dense = attention + mlp
    moe = attention + _elements(mlp_products(sizes, 1, sizes.shared_ffn / tp)) + sizes.hidden_size * sizes.experts
    moe += sizes.latent_weights
    experts = _elements(expert_products(sizes, 1, layout.ep, layout.etp)) if sizes.experts else 0.0
    return RankElements(dense, moe, experts, sizes.vocab * sizes.hidden_size / tp)


def _elements(products: Iterable[Product]) -> float:
    return sum(product.weights for product in products)
