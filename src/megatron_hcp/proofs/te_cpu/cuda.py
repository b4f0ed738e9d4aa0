"""CUDA as Transformer Engine's Python code sees it, on a machine where every call has finished when it returns.

Streams and events order work on a GPU; without one there is nothing to wait for. The price: a missing wait in
upstream's code goes unnoticed here.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import torch


class NullStream:
    """A stream or an event: every method can be called, does nothing, and returns another one."""

    cuda_stream = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        """Accepts what torch.cuda.Stream and torch.cuda.Event accept."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: self


STREAM = NullStream()


def silence_cuda(capability: tuple[int, int] = (9, 0)) -> None:
    """Replaces the parts of torch.cuda that the attention calls; for a process that does nothing else."""
    cuda: Any = torch.cuda
    cuda.Stream = cuda.Event = NullStream
    cuda.current_stream = lambda *_: STREAM
    cuda.stream = lambda _: contextlib.nullcontext()
    cuda.current_device = lambda: torch.device("cpu")
    cuda.nvtx.range_push = cuda.nvtx.range_pop = lambda *_: None
    cuda.is_current_stream_capturing = lambda: False
    cuda.get_device_capability = lambda *_: capability
    major, minor = capability
    cuda.get_device_properties = lambda *_: SimpleNamespace(
        major=major, minor=minor, multi_processor_count=132, name="none", total_memory=1
    )
