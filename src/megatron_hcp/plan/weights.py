"""The weights that a rank holds: every one by its shape, as megatron-core's GPTModel builds them.

Source: the layer specs of megatron-core with Transformer Engine (gpt_layer_specs, moe_module_specs), and the layers
that they name. A fused layer norm counts as a weight of its own. Tensor parallelism splits the wide side of a matrix;
norms, the router and MLA's down-projections are whole on every rank.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

from megatron_hcp.plan.layout import Layout, stage_layers
from megatron_hcp.plan.mixers import Blocks
from megatron_hcp.plan.model import PlanModel

VOCAB_MULTIPLE = 128
"""--make-vocab-size-divisible-by, times the tensor-parallel size."""


class Weight(NamedTuple):
    """`copies` weights of one shape on a rank. `expert`: sharded over the experts' own grid, as
    megatron-core does with EP alone. `linear`: of a GEMM."""

    name: str
    shape: tuple[int, ...]
    copies: int = 1
    expert: bool = False
    linear: bool = True

    @property
    def elements(self) -> int:
        return self.copies * prod(self.shape)


class Parameters(NamedTuple):
    """Elements on one rank of a stage; `expert` those that the experts' data-parallel ranks share."""

    dense: int
    expert: int


def padded_vocab(model: PlanModel, tp: int) -> int:
    """Rows of the embedding over all ranks: the vocabulary, rounded up so that each rank's part is a multiple of 128.

    Source: vocab_size_with_padding of Megatron-LM's tokenizers, with the default --make-vocab-size-divisible-by.
    """
    multiple = VOCAB_MULTIPLE * tp
    return -(-model.sizes.vocab // multiple) * multiple


class LayerKinds(NamedTuple):
    """Layers of each kind in a pipeline stage, or in a chunk of it."""

    dense: int
    moe: int


class LayerWeights(NamedTuple):
    """One layer's weights on a rank, their elements, and the distinct shapes of its GEMMs."""

    weights: tuple[Weight, ...]
    held: Parameters
    shapes: frozenset[tuple[int, ...]]


@lru_cache(maxsize=4096)
def chunk_kinds(model: PlanModel, pp: int, vp: int, most: int | None = None) -> tuple[tuple[LayerKinds, ...], ...]:
    """For each stage, the layers of each kind in each of its chunks: chunk c of stage s follows all chunks c - 1.

    `most`: only so many of a chunk's first layers are counted.
    """
    chunks = stage_layers(model, Layout(pp=pp, vp=vp))
    found: list[list[LayerKinds]] = [[] for _ in range(pp)]
    first = 0
    for chunk in range(vp):
        for stage in range(pp):
            count = chunks[stage][chunk]
            counted = count if most is None else min(count, most)
            moe = sum(model.is_moe[first : first + counted])
            found[stage].append(LayerKinds(counted - moe, moe))
            first += count
    return tuple(map(tuple, found))


@lru_cache(maxsize=8192)
def stage_kinds(model: PlanModel, pp: int, vp: int, most: int | None = None) -> tuple[LayerKinds, ...]:
    """For each stage, the layers of each kind in all its chunks; `most` as in `chunk_kinds`."""
    return tuple(LayerKinds(*map(sum, zip(*chunks))) for chunks in chunk_kinds(model, pp, vp, most))


@lru_cache(maxsize=8192)
def unlike_stages(model: PlanModel, pp: int, vp: int) -> tuple[LayerKinds, ...]:
    """The first stage, one for each other kind of stage, and the last: of a thousand stages, few differ."""
    kinds = stage_kinds(model, pp, vp)
    return (kinds[0], *dict.fromkeys(kinds[1:-1]), kinds[-1]) if pp > 1 else kinds


@lru_cache(maxsize=4096)
def layer_weights(model: PlanModel, tp: int, ep: int, etp: int, moe: bool) -> LayerWeights:
    """The weights of one layer on a rank; of one with experts where `moe`."""
    weights = _layer(model, tp, ep, etp, moe)
    return _together(weights) if model.mixers.blocks is None else _of_blocks(model, model.mixers.blocks, weights, tp)


def _of_blocks(model: PlanModel, blocks: Blocks, weights: tuple[Weight, ...], tp: int) -> LayerWeights:
    """The mean over layers that are one block each: of attention or Mamba over all, of an MLP over those
    without experts.

    Source: MambaMixer of megatron-core: two projections, a convolution of four tokens, and a norm.
    """
    hidden, inner = model.sizes.hidden_size, blocks.mamba_inner // tp
    mamba = (
        Weight("mamba in", (blocks.mamba_in // tp, hidden)),
        Weight("mamba out", (hidden, inner)),
        Weight("mamba convolution", (inner + blocks.mamba_states // tp, 5), linear=False),
        Weight("mamba norm", (inner,), linear=False),
    )
    whole = _together((*mamba, *weights))
    without = max(1, blocks.attention + blocks.mamba + blocks.mlp)

    def share(weight: Weight) -> float:
        if weight.name == "mlp norm":
            return 0.0
        if weight.name.startswith("mamba"):
            return blocks.mamba / blocks.layers
        if weight.name.startswith(("attention output", "qkv", "q ", "sinks")):
            return blocks.attention / blocks.layers
        return blocks.mlp / without if weight.name.startswith("mlp") else 1.0

    dense = sum(round(share(weight) * weight.elements) for weight in (*mamba, *weights) if not weight.expert)
    return whole._replace(held=Parameters(dense, whole.held.expert))


@lru_cache(maxsize=4096)
def end_weights(model: PlanModel, tp: int, ep: int, etp: int, pp: int, last: bool) -> LayerWeights:
    """What the first stage (`last`: the last one) holds beside layers: embedding, norm, output, prediction layers.

    With one stage, `last` has both ends.
    """
    vocab, hidden = padded_vocab(model, tp) // tp, model.sizes.hidden_size
    table = Weight("embedding", (vocab, hidden), linear=False)
    found: list[Weight] = []
    if not last or pp == 1 or model.mtp:  # multi-token prediction embeds the next tokens
        found.append(table)
    if last:
        found += _norm(model, "final norm", hidden)
        for _ in range(model.mtp):
            found += [*_norm(model, "mtp norm", hidden, 3), Weight("mtp projection", (hidden // tp, 2 * hidden))]
            found += layer_weights(model, tp, ep, etp, bool(model.sizes.experts)).weights
        if not model.tied:
            found.append(Weight("output", (vocab, hidden)))
        elif pp > 1 and not model.mtp:
            found.append(table._replace(name="output", linear=True))
    return _together(tuple(found))


def ends_of(model: PlanModel, layout: Layout, stage: int) -> tuple[LayerWeights, ...]:
    """The end of the model that the stage holds, if it holds one."""
    last = stage == layout.pp - 1
    if stage and not last:
        return ()
    return (end_weights(model, layout.tp, layout.ep, layout.etp, layout.pp, last),)


def parameters(model: PlanModel, layout: Layout, stage: int) -> Parameters:
    """Elements of all weights on a rank of that stage."""
    dense = expert = 0
    for end in ends_of(model, layout, stage):
        dense, expert = end.held
    for moe, count in zip((False, True), stage_kinds(model, layout.pp, layout.vp)[stage]):
        if count:
            held = layer_weights(model, layout.tp, layout.ep, layout.etp, moe).held
            dense += count * held.dense
            expert += count * held.expert
    return Parameters(dense, expert)


def _together(weights: tuple[Weight, ...]) -> LayerWeights:
    held = [sum(weight.elements for weight in weights if weight.expert is expert) for expert in (False, True)]
    shapes = frozenset(weight.shape for weight in weights if weight.linear and weight.name != "output")
    return LayerWeights(weights, Parameters(*held), shapes)


def _layer(model: PlanModel, tp: int, ep: int, etp: int, moe: bool) -> tuple[Weight, ...]:
    s = model.sizes
    hidden = s.hidden_size
    found = [*_norm(model, "attention norm", hidden, model.norms // 2)]
    found += _latent_attention(model, tp) if s.kv_lora else _attention(model, tp)
    found.append(Weight("attention output", (hidden, s.heads * s.v_head_dim // tp)))
    if model.linear_bias:
        found.append(Weight("attention output bias", (hidden,), linear=False))
    if model.sinks:
        found.append(Weight("sinks", (s.heads // tp,), linear=False))
    found += _norm(model, "mlp norm", hidden, model.norms // 2)
    if not moe:
        return (*found, *_mlp(model, "mlp", s.dense_ffn, tp))
    found.append(Weight("router", (s.experts, hidden), linear=False))
    if model.linear_bias:
        found.append(Weight("router bias", (s.experts,), linear=False))
    if s.shared_ffn:
        found += _mlp(model, "shared expert", s.shared_ffn, tp)
        if model.shared_gate:
            found.append(Weight("shared expert gate", (1, hidden), linear=False))
    if s.expert_hidden:
        found += [Weight("latent in", (s.expert_hidden, hidden)), Weight("latent out", (hidden, s.expert_hidden))]
    local, experts = s.experts // ep, _mlp(model, "experts", s.moe_ffn, etp, s.routed_hidden)
    found += [weight._replace(copies=local, expert=ep > 1) for weight in experts]
    return tuple(found)


def _norm(model: PlanModel, name: str, width: int, count: int = 1) -> list[Weight]:
    """A norm's scale, and its bias where the model has LayerNorm."""
    return [Weight(name, (width,), count * (1 + model.layernorm), linear=False)]


def _attention(model: PlanModel, tp: int) -> list[Weight]:
    s = model.sizes
    width = (s.heads * s.qk_head_dim + s.kv_heads * (s.qk_head_dim + s.v_head_dim)) // tp
    found = [Weight("qkv", (width, s.hidden_size))]
    if model.attention_bias:
        found.append(Weight("qkv bias", (width,), linear=False))
    if model.qk_norm:
        found += _norm(model, "q and k norms", s.qk_head_dim, 2)
    return found


def _latent_attention(model: PlanModel, tp: int) -> list[Weight]:
    s = model.sizes
    queries, nope = s.heads * s.qk_head_dim // tp, s.qk_head_dim - s.qk_rope
    found = []
    if s.q_lora:
        found += [Weight("q down", (s.q_lora, s.hidden_size)), *_norm(model, "q norm", s.q_lora)]
        found.append(Weight("q up", (queries, s.q_lora)))
    else:
        found.append(Weight("q", (queries, s.hidden_size)))
    found += [Weight("kv down", (s.kv_lora + s.qk_rope, s.hidden_size)), *_norm(model, "kv norm", s.kv_lora)]
    return [*found, Weight("kv up", (s.heads * (nope + s.v_head_dim) // tp, s.kv_lora))]


def _mlp(model: PlanModel, name: str, width: int, split: int, hidden: int = 0) -> list[Weight]:
    hidden, wide = hidden or model.sizes.hidden_size, width // split
    first = wide * (2 if model.sizes.gated else 1)
    found = [Weight(f"{name} in", (first, hidden)), Weight(f"{name} out", (hidden, wide))]
    if model.linear_bias:
        found += [
            Weight(f"{name} in bias", (first,), linear=False), Weight(f"{name} out bias", (hidden,), linear=False),
        ]  # fmt: skip
    return found
