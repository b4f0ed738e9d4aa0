"""A CPU that upstream takes for eight H100s: what it puts on "cuda" is host memory, and single precision is double."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

from megatron_hcp.pretend.stand_ins import device

STANDS_FOR = "GPUs and NCCL: the CPU and gloo, in float64"
CANNOT_TELL = "rounding of lower precisions, missing waits between streams, an order of collectives that hangs NCCL"

CPU = torch.device("cpu")
_TYPES = {"Float": torch.float64, "Double": torch.float64, "Long": torch.int64, "Int": torch.int32,
          "Byte": torch.uint8, "Bool": torch.bool}  # fmt: skip


class CpuForCuda(TorchFunctionMode):  # type: ignore[misc]
    """Every call of torch that names a CUDA device is done on the CPU; `.float()` rounds nothing."""

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if function in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if function is torch.Tensor.float:
            return args[0].double()
        if function is torch.Tensor.type and len(args) == 1 and not kwargs:
            return "torch.cuda." + function(*args).rpartition(".")[2]
        if function is torch.device and args and _host(args[0]) is CPU:
            return CPU
        if "device" in kwargs:
            kwargs["device"] = _host(kwargs["device"])
        kwargs.pop("pin_memory", None)
        if function is torch.Tensor.to:
            args = (args[0], *(_host(arg) for arg in args[1:]))
        return function(*args, **kwargs)


def _host(given: Any) -> Any:
    """The CPU for what names a GPU: a number, a name or a device; else what is given."""
    is_number = isinstance(given, int) and not isinstance(given, bool)
    is_named = isinstance(given, (str, torch.device)) and str(given).startswith("cuda")
    return CPU if is_number or is_named else given


def install() -> None:
    """Replaces torch.cuda's answers, and has each process group made by gloo, which finds its peers in a file."""
    device.install()
    anything: Any = torch.cuda
    for name, kind in _TYPES.items():
        setattr(anything, f"{name}Tensor", _typed(kind))
    real_init, real_new = dist.init_process_group, dist.new_group

    def init_process_group(*_: Any, **__: Any) -> None:
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        real_init("gloo", store=dist.FileStore(os.environ["HCP_STORE"], world), rank=rank, world_size=world)

    def new_group(ranks: Any = None, *_: Any, **__: Any) -> Any:
        return real_new(ranks, backend="gloo")

    for module in (dist, dist.distributed_c10d):
        vars(module).update(init_process_group=init_process_group, new_group=new_group)


def _typed(kind: torch.dtype) -> Any:
    def make(data: Any = (), *rest: int) -> torch.Tensor:
        return torch.empty((data, *rest), dtype=kind) if isinstance(data, int) else torch.tensor(data, dtype=kind)

    return make


def enter() -> None:
    """From now on, in this process."""
    CpuForCuda().__enter__()
