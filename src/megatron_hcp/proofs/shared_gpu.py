"""A backend of torch.distributed for several ranks on one GPU: what they exchange goes through the CPU, over gloo.

NCCL refuses two ranks on one GPU. With this backend the steps of level gpu run Transformer Engine's own kernels with
context parallelism on a machine with a single GPU. It shows what the kernels compute; nothing about NCCL or speed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

BACKEND = "shared_gpu"


def register() -> None:
    """Makes `BACKEND` known to torch.distributed, for tensors on a CPU and on a GPU."""
    if BACKEND not in dist.Backend.backend_list:
        dist.Backend.register_backend(BACKEND, _SharedGpu, devices=["cpu", "cuda"])


class _Staged(dist._Work):  # type: ignore[misc]
    """A running exchange between CPU copies; what arrives is copied to where it was asked for once it is waited for.

    It may be waited for twice, as with NCCL (Transformer Engine's ring does so): with gloo the second wait never ends.
    """

    def __init__(self, work: Any, arrivals: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        super().__init__()
        self._work = work
        self._arrivals = arrivals

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        work, self._work = self._work, None
        if work is not None:
            work.wait(timeout)
            for asked, copy in self._arrivals:
                asked.copy_(copy)
        return True

    def is_completed(self) -> bool:
        if self._work is not None and self._work.is_completed():
            self.wait()  # gloo is done; what arrived is still to be copied
        return self._work is None


class _SharedGpu(dist.ProcessGroup):  # type: ignore[misc]
    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._gloo = dist.ProcessGroupGloo(store, rank, size, timeout)
        # torch keeps a group's name in its backends.
        self._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, self._gloo)

    def getBackendName(self) -> str:
        return BACKEND

    def _staged(self, call: Callable[..., Any], written: Any, *rest: Any) -> _Staged:
        """Calls gloo's function with copies of all tensors on the CPU, of which those in `written` are copied back."""
        arrivals: list[tuple[torch.Tensor, torch.Tensor]] = []
        return _Staged(call(_on_cpu(written, arrivals), *(_on_cpu(each, []) for each in rest)), arrivals)

    def allreduce(self, tensors: Any, options: Any) -> _Staged:
        return self._staged(self._gloo.allreduce, tensors, options)

    def allreduce_coalesced(self, tensors: Any, options: Any) -> _Staged:
        return self._staged(self._gloo.allreduce_coalesced, tensors, options)

    def broadcast(self, tensors: Any, options: Any) -> _Staged:
        return self._staged(self._gloo.broadcast, tensors, options)

    def reduce(self, tensors: Any, options: Any) -> _Staged:
        return self._staged(self._gloo.reduce, tensors, options)

    def allgather(self, outputs: Any, inputs: Any, options: Any) -> _Staged:
        return self._staged(self._gloo.allgather, outputs, inputs, options)

    def _allgather_base(self, output: Any, given: Any, options: Any) -> _Staged:
        return self._staged(self._gloo._allgather_base, output, given, options)

    def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, options: Any) -> _Staged:
        return self._staged(self._gloo.allgather_into_tensor_coalesced, outputs, inputs, options)

    def reduce_scatter(self, outputs: Any, inputs: Any, options: Any) -> _Staged:
        return self._staged(self._gloo.reduce_scatter, outputs, inputs, options)

    def _reduce_scatter_base(self, output: Any, given: Any, options: Any) -> _Staged:
        return self._staged(self._gloo._reduce_scatter_base, output, given, options)

    def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, options: Any) -> _Staged:
        return self._staged(self._gloo.reduce_scatter_tensor_coalesced, outputs, inputs, options)

    def alltoall_base(self, output: Any, given: Any, out_sizes: Any, in_sizes: Any, options: Any) -> _Staged:
        return self._staged(self._gloo.alltoall_base, output, given, out_sizes, in_sizes, options)

    # Their names since torch 2.13.
    all_gather_single, reduce_scatter_single, all_to_all_single = _allgather_base, _reduce_scatter_base, alltoall_base

    def send(self, tensors: Any, to: int, tag: int) -> _Staged:
        copies = _on_cpu(tensors, [])
        return _Staged(self._gloo.send(copies, to, tag), [])

    def recv(self, tensors: Any, of: int, tag: int) -> _Staged:
        return self._staged(self._gloo.recv, tensors, of, tag)

    def barrier(self, opts: Any) -> _Staged:
        return _Staged(self._gloo.barrier(opts), [])


def _on_cpu(value: Any, arrivals: list[tuple[torch.Tensor, torch.Tensor]]) -> Any:
    """The value with contiguous CPU copies in place of its tensors; `arrivals` gets each tensor with its copy."""
    if isinstance(value, (list, tuple)):
        return [_on_cpu(each, arrivals) for each in value]
    if not isinstance(value, torch.Tensor):
        return value
    copy = torch.empty(value.shape, dtype=value.dtype).copy_(value)
    arrivals.append((value, copy))
    return copy
