"""The values of small device tensors that follow from host data: each lies beside its tensor, in `_host`.

Any other value that is read is made up, and `RECORD` says where.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from megatron_hcp.pretend.record import RECORD

STANDS_FOR = "values in GPU memory that follow from what the host gave"
CANNOT_TELL = "all other values"

META = torch.device("meta")
SMALL, SMALL_OF_INTEGERS = 1 << 14, 1 << 20
"""Elements of a device tensor whose values are still followed: lengths, masks and positions decide more than others."""
_LIKE = ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")
"""Of the tensor that they are called with, only the shape or the kind counts."""
_MADE_OF_NUMBERS = ("tensor", "zeros", "ones", "full", "arange", "as_tensor")
_TO_ANOTHER_DEVICE = ("to", "type_as", "as_tensor", "asarray")
"""They copy what the host has, but not on the host itself."""
_device_of: Any = torch.Tensor.device.__get__


def is_on_device(value: Any) -> bool:
    """Whether this is a tensor on the pretended GPU."""
    return isinstance(value, torch.Tensor) and bool(_device_of(value).type == "meta")


def made_up(tensor: torch.Tensor) -> torch.Tensor:
    """A device tensor on the host: its values where they were followed, else ones, zeros for integers, or False.

    What upstream checks of all values holds.
    """
    host = getattr(tensor, "_host", None)
    if host is not None:
        return torch.Tensor.clone(host.detach())
    RECORD.read()
    if hasattr(tensor, "_holds"):
        return torch.ones(tensor.shape, dtype=tensor.dtype)
    make = torch.ones if tensor.dtype.is_floating_point else torch.zeros
    return make(tensor.shape, dtype=tensor.dtype)


def moved(tensor: torch.Tensor) -> Any:
    """A tensor of the host on the GPU, with its values beside it where it is small."""
    return followed(torch.Tensor.to, (tensor, META), {}, tensor.to(META))


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        yield from (one for one in (value if isinstance(value, (list, tuple)) else (value,)) if _is_tensor(one))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def followed(func: Any, args: Any, kwargs: Any, result: Any) -> Any:
    """The result, with its values beside it where they follow from host data."""
    if func is torch.Tensor.__setitem__:
        _set(*args)
        return result
    results = [one for one in (result if isinstance(result, (tuple, list)) else [result]) if is_on_device(one)]
    if not results or any(one.numel() > _followed_to(one) for one in results):
        return result
    name = getattr(func, "__name__", "")
    if name == "all":
        vars(results[0])["_holds"] = True  # like torch.equal: what upstream checks of all values is so
    if name == "__getitem__" and not hasattr(args[0], "_host") and is_on_device(args[0]):
        return result  # as below: upstream cuts a buffer into a part for each rank
    if name in _LIKE:
        args = (torch.empty(result.shape, dtype=result.dtype), *args[1:])
    given = list(_tensors((*args, *kwargs.values())))
    if name == "copy_":
        given = given[1:]  # what was there before is gone
    if any(is_on_device(one) and not hasattr(one, "_host") for one in given):
        if name.endswith("_"):
            forget(results)
        return result
    if not given and name not in _MADE_OF_NUMBERS:
        return result
    try:
        with torch.no_grad():
            if name == "copy_":  # into a tensor of the host
                args = (torch.empty(result.shape, dtype=result.dtype), *args[1:])
            value = func(*map(_on_host, args), **{key: _on_host(arg) for key, arg in kwargs.items()})
            if name in _TO_ANOTHER_DEVICE and given and not is_on_device(given[0]):
                value = value.clone()
        values = list(_tensors([value]))
        if [one.shape for one in values] == [one.shape for one in results]:
            for one, known in zip(results, values):
                one._host = known
    except Exception:
        forget(results)  # a value that can't be followed is made up when it is read
    return result


def forget(tensors: Iterable[torch.Tensor]) -> None:
    """Their values are known no more."""
    for one in tensors:
        vars(one).pop("_host", None)


def _followed_to(tensor: torch.Tensor) -> int:
    return SMALL if tensor.dtype.is_floating_point else SMALL_OF_INTEGERS


def _set(tensor: Any, index: Any, value: Any) -> None:
    """The values of a part are set: they are followed on, or those of the whole are known no more."""
    if not is_on_device(tensor) or not hasattr(tensor, "_host"):
        return
    if any(is_on_device(one) and not hasattr(one, "_host") for one in _tensors((index, value))):
        del tensor._host
    else:
        tensor._host[_on_host(index)] = _on_host(value)


def _on_host(value: Any) -> Any:
    if _is_tensor(value):
        return getattr(value, "_host", value)
    if type(value) in (list, tuple):
        return type(value)(map(_on_host, value))
    is_meta = (isinstance(value, torch.device) and value == META) or (isinstance(value, str) and value == "meta")
    return torch.device("cpu") if is_meta else value
