"""Results whose sizes are values of the pretended GPU: nested tensors, positions of a mask, repeats, padding."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import torch

from megatron_hcp.pretend.record import RECORD
from megatron_hcp.pretend.stand_ins import tensors
from megatron_hcp.pretend.stand_ins.values import is_on_device, made_up, moved

STANDS_FOR = "operators of torch whose results have sizes that are values, in GPU memory"
CANNOT_TELL = "sizes that only the GPU knows: all of a mask holds then"

nested: Any = torch.nested
_Args = tuple[Any, ...]


def install() -> None:
    """What the mode asks before torch."""
    of: dict[Callable[..., Any], tuple[Any, ...]] = {
        _moved: (torch.Tensor.to,),
        _parts: (torch.Tensor.unbind, torch.unbind),
        _part: (torch.Tensor.__getitem__,),
        _positions: (torch.nonzero, torch.Tensor.nonzero, torch.where),
        _selected: (torch.masked_select, torch.Tensor.masked_select),
        _one_by_one: (torch.Tensor.__iter__,),
        _repeated: (torch.repeat_interleave, torch.Tensor.repeat_interleave),
        _padded: (torch.nn.functional.pad, torch._C._nn.pad),
    }
    kind: Any = importlib.import_module("torch.nested._internal.nested_tensor").NestedTensor
    kind.__new__ = _outside_of_the_mode(kind.__new__)
    nested.as_nested_tensor = _as_nested(nested.as_nested_tensor)
    tensors.SIZED.update({function: answer for answer, functions in of.items() for function in functions})


def _moved(func: Any, args: _Args, kwargs: dict[str, Any]) -> Any:
    """A nested tensor of the host on the GPU, as `tensors` has each of its parts."""
    tensor, *rest = args
    if not tensor.is_nested or is_on_device(tensor) or not tensors.wants_cuda(func, rest, kwargs):
        return tensors.ASK_TORCH
    return nested.nested_tensor_from_jagged(moved(tensor.values()), moved(tensor.offsets()))


def _outside_of_the_mode(real: Callable[..., Any]) -> Callable[..., Any]:
    """torch asks its parts for their device, and then looks for that device."""

    def make(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return real(*args, **kwargs)

    return make


def _as_nested(real: Callable[..., Any]) -> Callable[..., Any]:
    def as_nested_tensor(parts: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(parts, (list, tuple)) or not all(map(is_on_device, parts)):
            return real(parts, *args, **kwargs)
        ends = [0, *accumulate(len(part) for part in parts)]
        return nested.nested_tensor_from_jagged(torch.cat(list(parts)), torch.tensor(ends, device="cuda"))

    return as_nested_tensor


def _parts(func: Any, args: _Args, kwargs: dict[str, Any]) -> Any:
    """The parts of a nested tensor, each of its own length."""
    if not args[0].is_nested or not is_on_device(args[0]):
        return tensors.ASK_TORCH
    values, ends = args[0].values(), made_up(args[0].offsets()).tolist()
    return tuple(values[start:end] for start, end in pairwise(ends))


def _part(func: Any, args: _Args, kwargs: dict[str, Any]) -> Any:
    """One part of a nested tensor."""
    parts: Any = _parts(func, args, kwargs) if isinstance(args[1], int) else tensors.ASK_TORCH
    return parts if parts is tensors.ASK_TORCH else parts[args[1]]


def _one_by_one(func: Any, args: _Args, kwargs: dict[str, Any]) -> Any:
    """Its rows in turn, with the values of each."""
    if not is_on_device(args[0]) or not hasattr(args[0], "_host"):
        return tensors.ASK_TORCH
    return iter(tensors.followed_call(torch.unbind, args, {}))


def _positions(func: Any, args: _Args, kwargs: dict[str, Any]) -> Any:
    """Where a mask holds: torch counts all of it, which is made up unless its values are known."""
    named = {"input": kwargs.get("condition"), **dict(zip(("input", "chosen"), args)), **kwargs}
    mask = named["input"]
    if not is_on_device(mask) or named.keys() - {"input", "condition", "as_tuple"}:
        return tensors.ASK_TORCH  # torch.where of three chooses between values
    if not hasattr(mask, "_host"):
        RECORD.read()
        return tensors.ASK_TORCH
    found = func(mask._host, **{name: value for name, value in kwargs.items() if name == "as_tuple"})
    return tuple(map(moved, found)) if isinstance(found, tuple) else moved(found)


def _selected(func: Any, args: _Args, kwargs: dict[str, Any]) -> Any:
    """What a mask chooses: torch knows no size of it, but of the mask as an index."""
    named = {**dict(zip(("input", "mask"), args)), **kwargs}
    tensor, mask = named["input"], named["mask"]
    if not is_on_device(tensor) or not is_on_device(mask):
        return tensors.ASK_TORCH
    with tensors.Pretend():
        shape = torch.broadcast_shapes(tensor.shape, mask.shape)
        return tensor.expand(shape)[mask.expand(shape)]


def _repeated(func: Any, args: _Args, kwargs: dict[str, Any]) -> Any:
    repeats = kwargs.get("repeats", (None, *args)[:3][-1])  # the second argument, or the only one
    if not is_on_device(repeats) or "output_size" in kwargs:
        return tensors.ASK_TORCH
    return tensors.followed_call(func, args, {**kwargs, "output_size": int(made_up(repeats).sum())})


def _padded(func: Any, args: _Args, kwargs: dict[str, Any]) -> Any:
    if len(args) < 2 or not any(map(is_on_device, args[1])):
        return tensors.ASK_TORCH
    sizes = [int(made_up(size)) if is_on_device(size) else size for size in args[1]]
    return tensors.followed_call(func, (args[0], sizes, *args[2:]), kwargs)
