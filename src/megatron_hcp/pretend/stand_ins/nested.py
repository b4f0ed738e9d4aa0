"""Nested (jagged) tensors on the pretended GPU: their sizes are values, which follow from host data."""

from __future__ import annotations

from typing import Any

import torch

from megatron_hcp.pretend.stand_ins import tensors

STANDS_FOR = "torch's nested tensors in GPU memory"
CANNOT_TELL = "values, and sizes that only the GPU knows"


def moved(tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """A nested tensor of the host on the GPU, as `tensors` has each of its parts."""
    if not tensors.wants_cuda(torch.Tensor.to, args, kwargs):
        return tensors.real_call(torch.Tensor.to, (tensor, *args), kwargs)
    parts = map(tensors.moved, (tensor.values(), tensor.offsets()))
    return torch.nested.nested_tensor_from_jagged(*parts)


def unbind(tensor: Any, *_: Any) -> tuple[Any, ...]:
    """The parts, each of its own length."""
    values, ends = tensor.values(), tensors.made_up(tensor.offsets()).tolist()
    return tuple(values[start:end] for start, end in zip(ends, ends[1:]))


def get(tensor: Any, index: Any) -> Any:
    """One part."""
    return unbind(tensor)[index] if isinstance(index, int) else tensors.real_call(torch.Tensor.__getitem__, (tensor, index), {})


def install() -> None:
    """What the mode asks of a nested tensor."""
    tensors.NESTED.update({torch.Tensor.to: moved, torch.Tensor.unbind: unbind, torch.unbind: unbind, torch.Tensor.__getitem__: get})
