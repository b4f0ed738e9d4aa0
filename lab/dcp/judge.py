"""Step time with communication, to judge plans: with formulas of its own, none taken from the search.

Per layer and rank, forward and backward: GEMMs at their sustained rate; causal attention; a ring over the group, each
of whose C - 1 exchanges of K and V (in the backward pass also of their gradients) overlaps the attention to one of C
chunks. A ring is as slow as its slowest link. Constants of H100 nodes; see knowledge/planning, formulas 2 and 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

GEMM, ATTENTION = 0.46 * 989e12, 600e12  # FLOP/s that training sustains
NVLINK, NETWORK = 340e9, 40e9  # bytes per second and direction
NODE = 8
BACKWARD_FLOPS, BACKWARD_RATE = 2.5, 0.85  # of attention


class Model(NamedTuple):
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int  # weights of one layer's MLP that a token passes through
    vocab: int


MODELS = {
    "gqa": Model(32, 4096, 32, 8, 128, 3 * 4096 * 14336, 128256),  # Llama 3 8B
    "mha": Model(32, 4096, 32, 32, 128, 3 * 4096 * 11008, 32000),  # Llama 2 7B
}
CONFIGS = {
    "gqa": {
        "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
        "intermediate_size": 14336, "vocab_size": 128256, "hidden_act": "silu",
    },
    "mha": {
        "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 32,
        "intermediate_size": 11008, "vocab_size": 32000, "hidden_act": "silu",
    },
}  # fmt: skip
"""The same models as a config.json has them, for plans made by time."""

Groups = Sequence[tuple[int, int, Sequence[int]]]
"""One micro-batch: (first rank, size, lengths) of each group."""


def group_seconds(model: Model, start: int, size: int, lengths: Sequence[int], node: int = NODE) -> float:
    """Seconds of one group's forward and backward pass over all layers."""
    tokens = sum(lengths) / size
    weights = model.hidden * model.head_dim * (2 * model.heads + 2 * model.kv_heads) + model.mlp
    linear = 3 * 2 * tokens * (model.layers * weights + model.hidden * model.vocab) / GEMM
    flops = sum(length * length for length in lengths) * model.heads * 2 * model.head_dim / size
    forward = flops / ATTENTION
    backward = forward * BACKWARD_FLOPS / BACKWARD_RATE
    is_across = start // node != (start + size - 1) // node
    chunk_s = 4 * tokens * model.kv_heads * model.head_dim / (NETWORK if is_across else NVLINK)
    exposed = max(0.0, chunk_s - forward / size) + max(0.0, 2 * chunk_s - backward / size)
    return linear + model.layers * (forward + backward + (size - 1) * exposed)


def step_seconds(model: Model, batches: Sequence[Groups], packed: bool = True, node: int = NODE) -> float:
    """Seconds of a step: micro-batches one after the other, each as long as its slowest group.

    `packed`: a group's sequences run together; otherwise each runs in a pass of its own (megatron-core's main).
    """
    total = 0.0
    for groups in batches:
        slowest = 0.0
        for start, size, lengths in groups:
            passes = [lengths] if packed else [[length] for length in lengths]
            slowest = max(slowest, sum(group_seconds(model, start, size, own, node) for own in passes))
        total += slowest
    return total
