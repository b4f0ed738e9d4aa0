"""Tensors on "cuda": on torch's meta device, which has shapes and no values, and saying that they are on cuda:0.

Host tensors are real, so that data, seeds and bookkeeping run as they are. A small device tensor that was made from
host data keeps its values beside it (`_host`); any other value that is read is made up, and `RECORD` says where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from megatron_hcp.pretend.record import RECORD
from megatron_hcp.pretend.stand_ins.device import CUDA

STANDS_FOR = "tensors in GPU memory"
CANNOT_TELL = "values, and what depends on them; operators that only CUDA has"

META = torch.device("meta")
SMALL = 16384
"""Elements of a device tensor whose values are still followed."""
LARGE = 1 << 18
"""Elements of a device tensor of which no copy is made on the host."""
_CPU = torch.device("cpu")
_DEVICE, _IS_CUDA, _IS_META = torch.Tensor.device, torch.Tensor.is_cuda, torch.Tensor.is_meta
_device_of: Any = _DEVICE.__get__
_READS = {
    getattr(torch.Tensor, name)
    for name in "item tolist numpy __bool__ __int__ __float__ __index__ __array__ __contains__".split()
}
_INDEXES = (torch.Tensor.__getitem__, torch.Tensor.__setitem__)
_REPEATS = (torch.repeat_interleave, torch.Tensor.repeat_interleave)
_MADE_OF_NUMBERS = ("tensor", "zeros", "ones", "full", "arange", "as_tensor")
_KINDS = {
    "Float": torch.float32,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Byte": torch.uint8,
    "Double": torch.float64,
    "Bool": torch.bool,
}


def install() -> None:
    """Enters the mode, for as long as the process lives."""
    import torch.fx.experimental._config as symbolic

    symbolic.meta_nonzero_assume_all_nonzero = True
    autograd: Any = torch.autograd
    autograd._engine_run_backward = _in_the_mode(autograd._engine_run_backward)
    compiled: Any = torch._C._autograd
    push = compiled._push_saved_tensors_default_hooks
    compiled._push_saved_tensors_default_hooks = lambda *hooks: push(*map(_in_the_mode, hooks))
    anything: Any = torch.Tensor
    anything.record_stream = lambda *_: None
    Pretend().__enter__()


def _in_the_mode(run: Callable[..., Any]) -> Callable[..., Any]:
    """What calls upstream's own functions from inside torch, which has set its modes aside there."""

    def run_in_the_mode(*args: Any, **kwargs: Any) -> Any:
        if torch.overrides._get_current_function_mode() is not None:
            return run(*args, **kwargs)
        with Pretend():
            return run(*args, **kwargs)

    return run_in_the_mode


def is_on_device(value: Any) -> bool:
    """Whether this is a tensor on the pretended GPU."""
    return isinstance(value, torch.Tensor) and bool(_device_of(value).type == "meta")


def real_call(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """torch's own function. An exception below this frame is torch's, not this module's (`verdict` looks for it)."""
    return func(*args, **kwargs)


class Pretend(TorchFunctionMode):  # type: ignore[misc]
    """cuda is meta."""

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        owner = getattr(func, "__self__", None)
        if owner is _DEVICE:
            device = func(*args, **kwargs)
            return device if device.type != "meta" else _CPU if hasattr(args[0], "_is_copy") else CUDA
        if owner is _IS_CUDA:
            return is_on_device(args[0]) and not hasattr(args[0], "_is_copy")
        if owner is _IS_META:
            return False
        if func in NESTED and is_nested(args[0]) and is_on_device(args[0]) != (func is torch.Tensor.to):
            return NESTED[func](*args, **kwargs)
        if func in _INDEXES:
            args = (args[0], _index(args[1]), *args[2:])
            if func is torch.Tensor.__getitem__ and is_on_device(args[0]) and not vars(args[0]):
                return real_call(func, args, kwargs)  # a buffer is cut into a part for each rank: nothing follows it
        if args and isinstance(args[0], torch.Tensor):
            answer = _of_tensor(func, args, kwargs)
            if answer is not _ASK_TORCH:
                return answer
        if func is torch.device and args and isinstance(args[0], int):
            return CUDA
        if func in (torch.allclose, torch.equal, torch.is_nonzero) and any(map(is_on_device, args)):
            RECORD.read()
            return True
        if func in _REPEATS and len(args) > 1 and is_on_device(args[1]):
            kwargs["output_size"] = int(made_up(args[1]).sum())
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = META
        if kwargs.pop("pin_memory", False) and not _is_meta(kwargs.get("device")):
            shape = real_call(func, args, {**kwargs, "device": META})
            if shape.numel() > LARGE:  # room on the host, for a copy that is not made
                return _copy(shape)
        if func is torch.Tensor.to:
            args = (args[0], *(META if _is_cuda(arg) else arg for arg in args[1:]))
        return _followed(func, args, kwargs, real_call(func, args, kwargs))


_ASK_TORCH = object()
NESTED: dict[Any, Callable[..., Any]] = {}
"""torch's functions for which `nested` has an answer of its own."""


def is_nested(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and bool(value.is_nested)


def _of_tensor(func: Any, args: Any, kwargs: Any) -> Any:
    """The answer of a method that moves a tensor or reads it; `_ASK_TORCH` for any other."""
    tensor = args[0]
    on_device = is_on_device(tensor)
    if hasattr(tensor, "_is_copy") and wants_cuda(func, args[1:], kwargs):
        fresh = real_call(torch.Tensor.clone, (tensor,), {})  # back on the GPU
        return real_call(torch.Tensor.to, (fresh, _kind(tensor, args[1:], kwargs)), {})
    if func is torch.Tensor.cuda:
        return tensor if on_device else moved(tensor)
    if func is torch.Tensor.pin_memory:
        return tensor
    if func is torch.Tensor.type and len(args) > 1 and "cuda" in str(args[1]):
        kind = _KINDS.get(str(args[1]).rpartition(".")[2].removesuffix("'>").removesuffix("Tensor"), tensor.dtype)
        return tensor.to(META, kind)
    if not on_device:
        if func is torch.Tensor.copy_ and is_on_device(args[1]):
            return real_call(func, (tensor, made_up(args[1]), *args[2:]), {})
        return _ASK_TORCH
    if func is torch.Tensor.type and len(args) == 1 and not kwargs:
        return "torch.cuda." + func(*args).rpartition(".")[2]
    if func in _READS:
        return real_call(func, (made_up(tensor), *args[1:]), kwargs)
    wants_cpu = func is torch.Tensor.cpu or (func is torch.Tensor.to and _wants_cpu(args[1:], kwargs))
    if wants_cpu and tensor.numel() > LARGE:
        return _copy(real_call(torch.Tensor.to, (tensor, _kind(tensor, args[1:], kwargs)), {"copy": True}))
    if func is torch.Tensor.cpu:
        return made_up(tensor)
    if wants_cpu:
        return real_call(func, (made_up(tensor), *args[1:]), kwargs)
    if func is torch.Tensor.data_ptr:
        return tensor.storage_offset() + 512
    return _ASK_TORCH


def moved(tensor: torch.Tensor) -> Any:
    """A tensor of the host on the GPU, with its values beside it where it is small."""
    return _followed(torch.Tensor.to, (tensor, META), {}, tensor.to(META))


def _index(index: Any) -> Any:
    """An index whose slices may begin and end at a value of the device."""
    if isinstance(index, tuple):
        return tuple(map(_index, index))
    if isinstance(index, slice) and (is_on_device(index.start) or is_on_device(index.stop)):
        return slice(
            *(int(made_up(end)) if is_on_device(end) else end for end in (index.start, index.stop, index.step))
        )
    return index


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the host that is too large to be made: it has no memory either, and says that it is there."""
    vars(tensor)["_is_copy"] = True
    return tensor


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


def _is_cuda(device: Any) -> bool:
    if device is None or isinstance(device, bool):
        return False
    return isinstance(device, int) or str(device).startswith("cuda")


def _is_meta(device: Any) -> bool:
    return isinstance(device, torch.device) and device == META


def _wants_cpu(args: Any, kwargs: Any) -> bool:
    values = (*args, kwargs.get("device"))
    return any(isinstance(value, (str, torch.device)) and str(value) == "cpu" for value in values)


def wants_cuda(func: Any, args: Any, kwargs: Any) -> bool:
    values = (*args, kwargs.get("device"))
    return func is torch.Tensor.cuda or (func is torch.Tensor.to and any(map(_is_cuda, values)))


def _kind(tensor: torch.Tensor, args: Any, kwargs: Any) -> torch.dtype:
    """The type of what torch.Tensor.to gives."""
    values = (*args, kwargs.get("dtype"))
    return next((value for value in values if isinstance(value, torch.dtype)), tensor.dtype)


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        yield from (one for one in (value if isinstance(value, (list, tuple)) else (value,)) if _is_tensor(one))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _followed(func: Any, args: Any, kwargs: Any, result: Any) -> Any:
    """The result, with its values beside it where they follow from host data."""
    if func is torch.Tensor.__setitem__:
        _set(*args)
        return result
    if args and hasattr(args[0], "_is_copy") and is_on_device(result) and func is not torch.Tensor.to:
        return _copy(result)
    if not is_on_device(result) or result.numel() > SMALL:
        return result
    name = getattr(func, "__name__", "")
    if name == "all":
        vars(result)["_holds"] = True  # like torch.equal: what upstream checks of all values is so
    if name == "__getitem__" and not hasattr(args[0], "_host") and is_on_device(args[0]):
        return result  # as below: upstream cuts a buffer into a part for each rank
    given = list(_tensors((*args, *kwargs.values())))
    if name == "copy_":
        given = given[1:]  # what was there before is gone
    if any(is_on_device(one) and not hasattr(one, "_host") for one in given):
        if name.endswith("_"):
            vars(result).pop("_host", None)
        return result
    if not given and name not in _MADE_OF_NUMBERS:
        return result
    try:
        with torch.no_grad():
            if name == "copy_":  # into a tensor of the host
                args = (torch.empty(result.shape, dtype=result.dtype), *args[1:])
            value = func(*map(_on_host, args), **{key: _on_host(arg) for key, arg in kwargs.items()})
        if _is_tensor(value) and value.shape == result.shape:
            result._host = value
    except Exception:
        vars(result).pop("_host", None)  # a value that can't be followed is made up when it is read
    return result


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
