"""What layers take that mix tokens otherwise than by plain attention: products, kernels, and the memory they move.

| layer | kernels | memory beside products, forward and backward |
|---|---|---|
| Mamba 2 | a scan in chunks of 128 tokens | 3 times the passes over the mixer's channels |
| gated delta net | a scan in chunks of 64, and a chain of chunks that wait for one another | projections that are put in order, convolved and split; queries and keys that are normalized and repeated; a gated norm; what the scan's kernels hand on, 19 KB for each head of 128 by 128 |
| compressed attention | queries that all share a key of each selected place; an indexer that scores every fourth | the gradients of those keys, added in fp32; norm and rotation of the heads; 16 n + 5 passes of n residual streams around attention, and as many around the MLP |

Sources: MambaMixer, GatedDeltaNet, DSv4HybridAttention with csa.py, and hyper_connection.py with its fused kernels, of
megatron-core; chunk_gated_delta_rule of flash-linear-attention. No measured step that is fitted has such layers.
"""  # noqa: E501

from __future__ import annotations

from typing import NamedTuple

from megatron_hcp.cost.model_sizes import ModelSizes
from megatron_hcp.plan.mixers import Blocks, Compressed, DeltaNets
from megatron_hcp.plan.time.shapes import Product

CHUNK = 128
"""Tokens of a chunk in Mamba's scan: within it all pairs are multiplied. Source: mamba_chunk_size of megatron-core."""
MAMBA_PASSES = 6
"""Reads and writes of a Mamba mixer's channels, forward: projection, convolution, scan, gate and norm."""
NET_CHUNK = 64
"""Tokens of a chunk in the scan of gated delta nets. Source: chunk_gated_delta_rule of flash-linear-attention."""
CHAIN_S = 2e-6
"""Seconds of a chunk in a chain of them: two small products and what they load, one after the other."""
CHAINS = 3
"""Passes from chunk to chunk: the states forward, the same again, and their gradients."""
TRAINED = 1 + 2
"""What forward moves, and the gradients of what goes in and of what is multiplied with it."""


class Mixing(NamedTuple):
    """What one layer takes on a rank beside what any layer has, without what CP exchanges for it.

    `products`: in the layer's precision; `plain`: in bf16. `flops`, `backward_flops`: of its kernels, at the rate of
    attention. `moved`: bytes, forward and backward. `cast`: elements that become operands of 8 bits or fewer, forward.
    `chain_s`: seconds that no parallel work shortens, forward and backward.
    """

    products: tuple[Product, ...]
    plain: tuple[Product, ...]
    flops: float
    backward_flops: float
    moved: float
    cast: float
    chain_s: float = 0.0


def mamba(blocks: Blocks, hidden: int, tokens: float, tp: int) -> Mixing:
    """A Mamba mixer."""
    inner, states = blocks.mamba_inner / tp, blocks.mamba_states / tp
    products = (Product(tokens, blocks.mamba_in / tp, hidden), Product(tokens, hidden, inner))
    flops = 2.0 * tokens * (CHUNK * (inner + states) / 2 + 2 * inner * states / 2)
    moved = TRAINED * 2 * tokens * MAMBA_PASSES * (inner + states)
    return Mixing(products, (), flops, 2.5 * flops, moved, tokens * inner)


def delta_net(nets: DeltaNets, hidden: int, tokens: float, length: int, tp: int) -> Mixing:
    """A gated delta net for sequences of that length.

    A scan multiplies, for each token and head, keys with keys and queries with keys of its chunk (2 and 2 d), chunk
    weights with keys and values (2 and 2 d), and keys, queries and values with the state (3 of 2 d d); the backward
    pass has two and a half times as much. Its kernels read and write 24 vectors of a head, forward, and 50, backward.
    """
    keys, values = nets.key_heads * nets.key_dim / tp, nets.value_heads * nets.value_dim / tp
    heads, mixed = nets.value_heads / tp, (2 * nets.key_heads * nets.key_dim + nets.value_heads * nets.value_dim) / tp
    products = (Product(tokens, mixed + values + 2 * heads, hidden), Product(tokens, hidden, values))
    flops = tokens * heads * (8.0 * NET_CHUNK * nets.key_dim + 6.0 * nets.key_dim * nets.value_dim)
    passes = 6 * mixed + 6 * keys + 10 * values
    scan = (24 + 50) * 2 * (nets.key_dim + nets.value_dim) / 2 * heads
    moved = tokens * (TRAINED * 2 * passes + scan)
    return Mixing(products, (), flops, 2.5 * flops, moved, tokens * values, CHAINS * CHAIN_S * length / NET_CHUNK)


def compressed(
    own: Compressed, ratio: int, sizes: ModelSizes, tokens: float, length: int, is_again: bool
) -> Mixing:  # fmt: skip
    """An attention layer of DeepSeek-V4 whose keys stand for `ratio` tokens each; 0: those of its window alone.

    No TP size divides it: DSv4HybridAttention of megatron-core refuses TP above 1.

    Args:
        is_again: the projection of the queries is computed again in the backward pass.
    """
    hidden, heads, wide = sizes.hidden_size, sizes.heads, own.head_dim
    queries, groups = heads * wide, own.groups
    up = Product(tokens, queries, own.q_lora)
    products = [Product(tokens, own.q_lora, hidden), up, Product(tokens, wide, hidden)]
    products.append(Product(tokens, hidden, groups * own.o_lora))
    plain = [Product(tokens, own.o_lora, queries / groups)] * groups
    window = min(own.window, length)
    keys, scored, selected = window * (1 - window / (2 * length)), 0.0, 0.0
    if ratio == 4:
        most = min(own.topk, length // ratio)
        selected = most * (1 - most * ratio / (2 * length))
        scored = length / ratio / 2
        plain += [Product(tokens, 4 * (wide + own.index_dim), hidden), Product(tokens, own.index_heads, hidden)]
        products.append(Product(tokens, own.index_heads * own.index_dim, own.q_lora))
    elif ratio:
        selected = length / ratio / 2
        plain.append(Product(tokens, 2 * wide, hidden))
    keys += selected
    scores = 2.0 * own.index_heads * own.index_dim
    flops = tokens * (4.0 * queries * keys + scores * scored)
    backward = tokens * (10.0 * queries * keys + (2.0 * queries + 2 * scores) * selected * bool(scored))
    passes = 2 * (2 + 3 + 2 + 2) * queries + (4 * queries if is_again else 0)
    cast = own.q_lora + groups * own.o_lora + queries / 3  # the gradient of the queries alone
    streams = 2 * 2 * hidden * (16 * own.streams + 5) if own.streams else 0
    moved = tokens * (passes + 4 * wide * keys + streams)
    backward += up.flops if is_again else 0.0
    return Mixing(tuple(products), tuple(plain), flops, backward, moved, tokens * cast)
