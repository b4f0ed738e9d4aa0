"""torch.cuda of a machine with eight H100s: answers, streams and events, and no memory."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import torch

STANDS_FOR = "torch.cuda: eight NVIDIA H100 80GB"
CANNOT_TELL = "memory, time, a wait that is missing, what CUDA graphs capture, torch.compile"

CUDA = torch.device("cuda", 0)
CAPABILITY = (9, 0)
_gpus = [8]
"""As many as a node has, at least eight; Transformer Engine's stand-in installs this one again."""
_MEMORY = 80 << 30


class NoStream:
    """A stream, an event or a graph: every method can be called, does nothing, and returns the same object."""

    cuda_stream = device_index = stream_id = priority = 0
    device = CUDA

    def __init__(self, *_: Any, **__: Any) -> None:
        """Accepts what torch's own accept."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        """Nothing was entered."""

    def query(self) -> bool:
        return True

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, -5

    def elapsed_time(self, *_: Any) -> float:
        return 1.0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: self


class _Zeros(dict[str, int]):
    def __missing__(self, key: str) -> int:
        return 0


def _nothing(*_: Any, **__: Any) -> None:
    """Done."""


def _context(*_: Any, **__: Any) -> Any:
    return contextlib.nullcontext()


def _undecorated(function: Any = None, *_: Any, **__: Any) -> Any:
    return function or (lambda inner: inner)


_real_module_to = torch.nn.Module.to


def _module_to(module: Any, where: Any = None, *rest: Any, **named: Any) -> Any:
    """A device's number is that of a GPU, for which torch asks the driver."""
    given = () if where is None else (CUDA if type(where) is int else where, *rest)
    return _real_module_to(module, *given, **named)


def install(gpus_per_node: int = 0) -> None:
    """Replaces torch.cuda's functions in this process; torch's own modules that look at them are imported before."""
    cuda: Any = torch.cuda
    stream = NoStream()
    properties = SimpleNamespace(
        major=CAPABILITY[0],
        minor=CAPABILITY[1],
        multi_processor_count=132,
        name="NVIDIA H100 80GB HBM3",
        total_memory=_MEMORY,
        uuid="0",
        pci_bus_id=0,
        pci_device_id=0,
        pci_domain_id=0,
    )
    for name in ("synchronize set_device set_stream empty_cache _lazy_init _lazy_call manual_seed manual_seed_all seed "
                 "set_rng_state reset_peak_memory_stats ipc_collect").split():  # fmt: skip
        setattr(cuda, name, _nothing)
    for name in ("memory_allocated max_memory_allocated memory_reserved max_memory_reserved device_memory_used "
                 "utilization power_draw temperature initial_seed current_device").split():  # fmt: skip
        setattr(cuda, name, lambda *_: 0)
    for name in ("is_available", "is_initialized", "is_bf16_supported", "can_device_access_peer"):
        setattr(cuda, name, lambda *_, **__: True)
    for name in ("current_stream", "default_stream"):
        setattr(cuda, name, lambda *_: stream)
    cuda.stream = cuda.device = cuda.nvtx.range = _context
    cuda.Stream = cuda.Event = cuda.ExternalStream = cuda.CUDAGraph = NoStream
    _gpus[0] = max(_gpus[0], gpus_per_node)
    cuda.device_count = lambda: _gpus[0]
    cuda.get_device_capability = lambda *_: CAPABILITY
    cuda.get_device_properties = lambda *_: properties
    cuda.get_device_name = lambda *_: properties.name
    cuda.get_rng_state = cuda.random.get_rng_state = lambda *_, **__: torch.get_rng_state()
    cuda.memory_stats = lambda *_: _Zeros()
    cuda.mem_get_info = lambda *_: (_MEMORY, _MEMORY)
    cuda.memory_summary = lambda *_, **__: ""
    cuda.is_current_stream_capturing = lambda: False
    cuda.cudart = NoStream
    cuda.clock_rate = lambda *_: 1980
    cuda.nvtx.range_push = cuda.nvtx.range_pop = cuda.nvtx.mark = _nothing
    cuda.default_generators = tuple(torch.Generator() for _ in range(8))
    compiled: Any = torch._C
    compiled._graph_pool_handle = cuda.graph_pool_handle = cuda.graphs._graph_pool_handle = lambda *_: (0, 0)
    compiled._cuda_setStream = compiled._cuda_setDevice = compiled._host_emptyCache = _nothing
    for name, kind in _TYPED.items():
        setattr(cuda, name, _typed(name, kind))
    top: Any = torch
    top.set_default_device = _nothing
    top.compile = top.jit.script = _undecorated
    top.nn.Module.to = _module_to


_TYPED = {
    "FloatTensor": torch.float32,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "ByteTensor": torch.uint8,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
}


def _typed(name: str, kind: torch.dtype) -> type:
    """torch.cuda.FloatTensor and the like: called with data or sizes, and asked for by isinstance."""

    class TypedTensor(type):
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, torch.Tensor) and value.dtype == kind and value.is_cuda

        def __call__(cls, data: Any = (), *rest: Any) -> torch.Tensor:
            if isinstance(data, int):
                return torch.empty((data, *rest), dtype=kind, device="cuda")
            return torch.tensor(data, dtype=kind, device="cuda")

    return TypedTensor(name, (), {})
