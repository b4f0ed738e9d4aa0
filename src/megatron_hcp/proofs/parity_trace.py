"""What every module of a model computes in one forward and backward pass, so that two runs can be compared by module.

A trace holds, in the order of the forward pass, what each module returned and the gradient that came back to it, and
the gradient of each weight. Each rank compares its own tokens; the errors are those over all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from megatron_hcp.proofs.gpt import losses_of

_WHOLE = ("core_attention",)
"""Modules that are compared as a whole, because implementations differ inside them."""


class Trace(NamedTuple):
    """Of one rank: [tokens, features] by module, in the order of the forward pass; weights' gradients by parameter."""

    outputs: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor]
    weights: dict[str, torch.Tensor]


class Where(list[str]):
    """The module that is running, for the message of one that fails or hangs."""

    def __str__(self) -> str:
        return self[-1] if self else "the model"


def trace(model: Any, batch: dict[str, Any], where: Where) -> Trace:
    """One forward and backward pass of a micro-batch. Collective."""
    tokens = batch["tokens"].shape[1]
    found = Trace({}, {}, {})
    handles = []
    for name, module in _compared(model):

        def begin(_: Any, args: Any, name: str = name) -> None:
            where[:] = [name]

        def end(_: Any, args: Any, output: Any, name: str = name) -> None:
            out = output[0] if isinstance(output, tuple) else output
            if isinstance(out, torch.Tensor) and out.is_floating_point() and out.shape[:1] == (tokens,):
                found.outputs[name] = out.detach().reshape(tokens, -1).clone()
                if out.requires_grad:
                    out.register_hook(lambda grad: found.gradients.update({name: grad.reshape(tokens, -1).clone()}))

        handles += [module.register_forward_pre_hook(begin), module.register_forward_hook(end)]
    losses = losses_of(model, batch)
    where[:] = ["the backward pass"]
    (losses.double() * batch["loss_mask"]).sum().backward()
    for handle in handles:
        handle.remove()
    found.weights.update({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
    return found


def summed_weights(found: Trace, group: dist.ProcessGroup) -> Trace:
    """The trace with the weights' gradients of all members, as training sums them."""
    for grad in found.weights.values():
        dist.all_reduce(grad, group=group)
    return found


def errors_of_traces(found: Trace, wanted: Trace, rows: torch.Tensor, counts: torch.Tensor) -> dict[str, float]:
    """The error of each module and weight in the order in which a first difference shows, relative to its size.

    Args:
        rows: which of the tokens of `wanted` this rank has in `found`.
        counts: bool [tokens of found], False for padding.

    Collective over the default group: all ranks have the same modules.
    """
    errors = {}
    for name, ours, theirs in _pairs(found, wanted, rows, counts):
        sums = torch.stack([(ours - theirs).double().square().sum(), theirs.double().square().sum()])
        dist.all_reduce(sums)
        error, size = sums.sqrt().tolist()
        # NaN stays NaN here: the bound rejects it.
        errors[name] = error / size if size else error
    return errors


def _pairs(
    found: Trace, wanted: Trace, rows: torch.Tensor, counts: torch.Tensor
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    forward = [name for name in wanted.outputs if name in found.outputs]
    for name in forward:
        if _is_cut_alike(found.outputs[name], wanted.outputs[name], rows):
            yield f"forward {name}", found.outputs[name][counts], wanted.outputs[name][rows][counts]
    for name in reversed([name for name in forward if name in wanted.gradients]):
        if name in found.gradients and _is_cut_alike(found.gradients[name], wanted.gradients[name], rows):
            yield f"backward {name}", found.gradients[name][counts], wanted.gradients[name][rows][counts]
    for name in reversed(list(wanted.weights)):
        ours = found.weights.get(name)
        yield f"weight {name}", torch.zeros_like(wanted.weights[name]) if ours is None else ours, wanted.weights[name]


def _is_cut_alike(ours: torch.Tensor, theirs: torch.Tensor, rows: torch.Tensor) -> bool:
    """False for a tensor whose rows are not this rank's tokens, like the inputs of an expert."""
    return len(ours) == len(rows) and ours.shape[1] == theirs.shape[1]


def _compared(model: Any) -> Iterator[tuple[str, Any]]:
    """The leaf modules, and those that are compared as a whole."""
    for name, module in model.named_modules():
        parts = name.split(".")
        inside = any(whole in parts[:-1] for whole in _WHOLE)
        is_leaf = not any(module.children()) and not type(module).__name__.startswith("Identity")
        if not inside and "experts" not in parts and (parts[-1] in _WHOLE or is_leaf):
            yield name, module
