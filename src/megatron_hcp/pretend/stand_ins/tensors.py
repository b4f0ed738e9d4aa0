"""Tensors on "cuda": on torch's meta device, which has shapes and no values, and saying that they are on cuda:0.

Host tensors are real, so that data, seeds and bookkeeping run as they are. `values` has what is known of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from megatron_hcp.pretend.record import RECORD
from megatron_hcp.pretend.stand_ins.device import CUDA
from megatron_hcp.pretend.stand_ins.values import META, followed, is_on_device, made_up, moved

STANDS_FOR = "tensors in GPU memory"
CANNOT_TELL = "values, and what depends on them; operators that only CUDA has"

LARGE = 1 << 18
"""Elements of a device tensor of which no copy is made on the host."""
_CPU = torch.device("cpu")
_DEVICE, _IS_CUDA, _IS_META = torch.Tensor.device, torch.Tensor.is_cuda, torch.Tensor.is_meta
_READS = {
    getattr(torch.Tensor, name)
    for name in "item tolist numpy __bool__ __int__ __float__ __index__ __array__ __contains__".split()
}
_ROOM = (torch.empty, torch.empty_like, torch.Tensor.new_empty)
"""What makes tensors whose values come later."""
_OF_NUMBERS = (torch.arange, torch.linspace, torch.full, torch.zeros, torch.ones)
_OF_SIZES = (torch.Tensor.split, torch.Tensor.repeat, torch.Tensor.view, torch.Tensor.reshape, torch.Tensor.expand)
"""What takes numbers, which may be read from the device; of the latter all arguments but the first."""
_INDEXES = (torch.Tensor.__getitem__, torch.Tensor.__setitem__)
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
    autograd.Variable._execution_engine = _Engine(autograd.Variable._execution_engine)
    compiled: Any = torch._C._autograd
    push = compiled._push_saved_tensors_default_hooks
    compiled._push_saved_tensors_default_hooks = lambda *hooks: push(*map(_in_the_mode, hooks))
    anything: Any = torch.Tensor
    anything.record_stream = lambda *_: None
    Pretend().__enter__()


class _Engine:
    """autograd's engine, which upstream calls itself for a stage of a pipeline."""

    def __init__(self, real: Any) -> None:
        self.real, self.run_backward = real, _in_the_mode(real.run_backward)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


def _in_the_mode(run: Callable[..., Any]) -> Callable[..., Any]:
    """What calls upstream's own functions from inside torch, which has set its modes aside there."""

    def run_in_the_mode(*args: Any, **kwargs: Any) -> Any:
        if torch.overrides._get_current_function_mode() is not None:
            return run(*args, **kwargs)
        with Pretend():
            return run(*args, **kwargs)

    return run_in_the_mode


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
        if func in SIZED and (answer := SIZED[func](func, args, kwargs)) is not ASK_TORCH:
            return answer
        if func in _OF_NUMBERS:
            args = tuple(map(_number, args))
        if func in _OF_SIZES:
            args = (args[0], *map(_number, args[1:]))
        if func in _INDEXES:
            args = (args[0], _index(args[1], decides_size=func is torch.Tensor.__getitem__), *args[2:])
            if func is torch.Tensor.__getitem__ and is_on_device(args[0]) and not vars(args[0]):
                return real_call(func, args, kwargs)  # a buffer is cut into a part for each rank: nothing follows it
        if args and isinstance(args[0], torch.Tensor):
            answer = _of_tensor(func, args, kwargs)
            if answer is not ASK_TORCH:
                return answer
        if func is torch.device and args and isinstance(args[0], int):
            return CUDA
        if func in (torch.allclose, torch.equal, torch.is_nonzero) and any(map(is_on_device, args)):
            RECORD.read()
            return True
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = META
        if kwargs.pop("pin_memory", False) and func in _ROOM and not _is_meta(kwargs.get("device")):
            shape = real_call(func, args, {**kwargs, "device": META})
            if shape.numel() > LARGE:  # room on the host, for a copy that is not made
                return _copy(shape)
        if func is torch.Tensor.to:
            args = (args[0], *(META if _is_cuda(arg) else arg for arg in args[1:]))
        result = followed_call(func, args, kwargs)
        is_of_copy = args and hasattr(args[0], "_is_copy") and is_on_device(result) and func is not torch.Tensor.to
        return _copy(result) if is_of_copy else result


ASK_TORCH = object()
"""An answer of this module's, or of `sized`: there is none of its own."""
SIZED: dict[Any, Callable[[Any, Any, Any], Any]] = {}
"""By torch's function, the answer of `sized` to its function and arguments."""


def _of_tensor(func: Any, args: Any, kwargs: Any) -> Any:
    """The answer of a method that moves a tensor or reads it; `ASK_TORCH` for any other."""
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
        return ASK_TORCH
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
    return ASK_TORCH


def _number(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_number(one) for one in value]
    return made_up(value).item() if is_on_device(value) and value.dim() == 0 else value


def _index(index: Any, *, decides_size: bool) -> Any:
    """An index whose slices may begin and end at a value of the device, and whose masks are positions where known."""
    if isinstance(index, tuple):
        found: list[Any] = []
        for part in index:
            one = _index(part, decides_size=decides_size)
            found += one if isinstance(one, tuple) else [one]
        return tuple(found)
    if isinstance(index, slice) and (is_on_device(index.start) or is_on_device(index.stop)):
        return slice(
            *(int(made_up(end)) if is_on_device(end) else end for end in (index.start, index.stop, index.step))
        )
    if decides_size and _is_mask(index):
        if hasattr(index, "_host"):
            return tuple(map(moved, index._host.nonzero(as_tuple=True)))
        RECORD.read()  # torch takes all of it
    return index


def _is_mask(index: Any) -> bool:
    return is_on_device(index) and index.dtype == torch.bool and index.dim() > 0


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the host that is too large to be made: it has no memory either, and says that it is there."""
    vars(tensor)["_is_copy"] = True
    return tensor


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


def followed_call(func: Any, args: Any, kwargs: Any) -> Any:
    """torch's own function, and its result's values beside it."""
    return followed(func, args, kwargs, real_call(func, args, kwargs))
