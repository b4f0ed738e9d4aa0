"""A run with context parallelism beside the same run without: losses, gradients, and the first module that differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from megatron_hcp.pretend.real.rank import Noted

BOUND = 1e-9
"""Of a relative difference. All is float64, but for tables and probabilities that upstream makes in float32, from the
same numbers on both sides; what only the order of a sum decides is below 1e-12."""


class Compared(NamedTuple):
    """One result of both sides, in the terms of `hcp.parity/1`: `phase` is loss, forward or weight."""

    phase: str
    module: str
    error: float
    bound: float = BOUND


def compare(parts: Sequence[Noted], alone: Noted) -> list[Compared]:
    """Losses first, then modules in the order of the forward pass, then the gradients and their norm."""
    return [*_losses(parts[0], alone), *_outputs(parts, alone), *_gradients(parts, alone)]


def _losses(one: Noted, alone: Noted) -> Iterator[Compared]:
    for name in sorted({*one.losses, *alone.losses}):
        ours, theirs = one.losses.get(name, 0.0), alone.losses.get(name, 0.0)
        yield Compared("loss", name, abs(ours - theirs) / max(abs(theirs), 1e-30))


def _outputs(parts: Sequence[Noted], alone: Noted) -> Iterator[Compared]:
    """A token's number is the same wherever it lies: ranks hold the tokens in another order, so both are sorted."""
    for name, theirs in alone.outputs.items():
        held = [part.outputs[name] for part in parts if name in part.outputs]
        ours = torch.cat(held) if held else theirs.new_empty(0)
        if ours.numel() == theirs.numel() and not name.endswith("output_layer"):
            yield Compared("forward", name or "model", _relative(ours.sort()[0], theirs.sort()[0]))


def _gradients(parts: Sequence[Noted], alone: Noted) -> Iterator[Compared]:
    for name, theirs in alone.gradients.items():
        held = [part.gradients.get(name) for part in parts]
        yield Compared("weight", name, max(_relative(ours, theirs) for ours in held))
    total = [sum(float(grad.norm()) ** 2 for grad in one.gradients.values()) ** 0.5 for one in (*parts, alone)]
    worst = max(abs(norm - total[-1]) for norm in total[:-1])
    yield Compared("weight", "(norm of all gradients)", worst / max(total[-1], 1e-30))


def _relative(ours: Any, theirs: torch.Tensor) -> float:
    if ours is None or ours.shape != theirs.shape:
        return float("inf")
    error = float((ours - theirs).norm()) / max(float(theirs.norm()), 1e-30)
    return error if error == error else float("inf")
