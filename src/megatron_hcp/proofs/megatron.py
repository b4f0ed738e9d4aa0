"""megatron-core on a CPU: its process groups over gloo, its models and optimizers without CUDA.

megatron-core asks for CUDA in four ways: torch.cuda.current_device() as a device, device="cuda" or .cuda() on
tensors, the names of their types, and pinned memory and streams for overlap. `cpu_megatron` answers all of them with
the CPU while it is active.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

from megatron_hcp.proofs.te_cpu.cuda import STREAM, NullStream


class _CpuForCuda(TorchFunctionMode):  # type: ignore[misc]
    """Every torch call with device="cuda" or pinned memory becomes one on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if func is torch.Tensor.type and len(args) == 1 and not kwargs:
            return func(args[0]).replace("torch.", "torch.cuda.", 1)
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = torch.device("cpu")
        kwargs.pop("pin_memory", None)
        if func is torch.Tensor.to:
            args = tuple(torch.device("cpu") if _is_cuda(arg) else arg for arg in args)
        return func(*args, **kwargs)


def _is_cuda(device: Any) -> bool:
    return isinstance(device, (str, torch.device)) and str(device).startswith("cuda")


@contextlib.contextmanager
def cpu_megatron() -> Iterator[None]:
    """While active, the installed megatron-core builds and trains models on the CPU."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(torch.cuda, "current_device", lambda: torch.device("cpu")))
        stack.enter_context(mock.patch.object(torch.cuda, "Stream", NullStream))
        stack.enter_context(mock.patch.object(torch.cuda, "Event", NullStream))
        stack.enter_context(mock.patch.object(torch.cuda, "current_stream", lambda *_: STREAM))
        stack.enter_context(mock.patch.object(torch.cuda, "stream", lambda _: contextlib.nullcontext()))
        stack.enter_context(mock.patch.object(torch.cuda, "synchronize", lambda *_: None))
        stack.enter_context(_CpuForCuda())
        yield


@contextlib.contextmanager
def model_parallel(
    *, tp: int = 1, cp: int = 1, hcp_sizes: Sequence[int] | None = None, timeout: float = 60, **more: Any
) -> Iterator[None]:
    """megatron-core's process groups while the block runs. Collective.

    Args:
        hcp_sizes: the levels of hierarchical CP; None builds none, whatever a model's config says afterwards (HCP001).
        more: further arguments of megatron.core.parallel_state.initialize_model_parallel.

    Leaving destroys the groups, and also drops the hierarchical ones, which upstream's destroy_model_parallel keeps
    (HCP023).
    """
    from megatron.core import parallel_state

    before = list(dist.distributed_c10d._world.pg_map)
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=tp,
        context_parallel_size=cp,
        hierarchical_context_parallel_sizes=list(hcp_sizes) if hcp_sizes else None,
        distributed_timeout_minutes=timedelta(seconds=timeout) / timedelta(minutes=1),
        create_gloo_process_groups=False,
        **more,
    )
    try:
        yield
        # A rank that destroys its end of a group breaks it for members that are still connecting.
        dist.barrier()
    finally:
        parallel_state.destroy_model_parallel()
        drop_hierarchical_groups()
        # Upstream only drops its references to the groups, which hold sockets and threads until destroyed.
        for group in [group for group in dist.distributed_c10d._world.pg_map if group not in before]:
            dist.destroy_process_group(group)


def drop_hierarchical_groups() -> None:
    """Makes megatron-core forget its hierarchical and hybrid CP groups; destroy_model_parallel doesn't (HCP023)."""
    from megatron.core import parallel_state

    parallel_state._HIERARCHICAL_CONTEXT_PARALLEL_GROUPS = None
    parallel_state._HYBRID_DP_CP_GROUPS = {}
