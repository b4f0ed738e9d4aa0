"""The parts of a layer's time, and a layer of its attention and its MLP."""

from __future__ import annotations

from typing import NamedTuple

from megatron_hcp.plan.layout import CORE_ATTENTION

TP_GATHERS, TP_SCATTERS = (2, 4), (2, 2)
"""Collectives of a layer with sequence parallelism, (forward, backward); the backward pass gathers the inputs of the
wgrads again. What is gathered is cast to 8 bits before it is sent, where the products take it so; what is scattered is
bf16. Source: gather_along_first_dim, distributed.py of Transformer Engine."""
TP_FORWARD_SHARE = (TP_GATHERS[0] + TP_SCATTERS[0]) / (sum(TP_GATHERS) + sum(TP_SCATTERS))
_WHOLE_MLP = frozenset({"mlp", "moe"})
"""Modules whose recomputation repeats an MLP's forward pass."""


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
    """What a micro-batch takes on a rank, part by part."""

    dense: LayerSeconds
    moe: LayerSeconds
    output: LayerSeconds
    mtp: LayerSeconds
    """One multi-token-prediction layer without its transformer layer: its projection and its own output."""
    predicting: LayerSeconds
    """The transformer layer of a prediction layer."""
    unmeasured: float = 0.0
    """Of a layer, the kernels that no measured step has."""


class Front(NamedTuple):
    """What a layer's attention side takes, forward and backward: all that the MLP does not change."""

    gemm: float
    forward_attention: float
    attention: float
    memory_bound: float
    tp: float
    cp: float
    hidden_tp: float
    hidden_cp: float
    unmeasured: float = 0.0
    """Of all these, the kernels of layers that no measured step has."""


class Mlp(NamedTuple):
    """What a layer's MLP takes, forward and backward; `ep`: all of its exchange, exposed or not."""

    gemm: float
    memory_bound: float
    ep: float = 0.0


def joined(
    front: Front, mlp: Mlp, recompute: str, floor_s: float, ep_exposed: float = 0.0,
    modules: frozenset[str] = CORE_ATTENTION,
) -> LayerSeconds:  # fmt: skip
    """A layer of that attention and that MLP; the host cannot start its kernels in less than `floor_s`.

    `modules`: what selective recomputation repeats; of the small ones no time is counted.
    """
    gemm, memory = front.gemm + mlp.gemm, front.memory_bound + mlp.memory_bound
    tp, ep = front.tp, mlp.ep * ep_exposed
    again = 0.0
    if recompute == "selective":
        again = (front.forward_attention + front.cp / 3) * ("core_attn" in modules)
        again += ((mlp.gemm + mlp.memory_bound) / 3 + ep / 2) * bool(modules & _WHOLE_MLP)
    elif recompute == "full":
        share = TP_FORWARD_SHARE
        again = gemm / 3 + front.forward_attention + memory / 3 + tp * share + ep / 2 + front.cp / 3
    busy = gemm + front.attention + memory + tp + ep + front.cp + again
    idle = floor_s - busy if busy < floor_s else 0.0
    return LayerSeconds(
        gemm,
        front.attention,
        memory,
        tp,
        ep,
        front.cp,
        again,
        idle,
        front.hidden_tp,
        max(0.0, mlp.ep - ep),
        front.hidden_cp,
    )
