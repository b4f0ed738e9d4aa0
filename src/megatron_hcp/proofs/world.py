"""The inside of a worker process: it joins the world, picks its device, collects results, and leaves cleanly.

torch is imported inside the functions, so that code importing this module can report that torch is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.proofs.arguments import REFERENCE, TE

if TYPE_CHECKING:
    import torch


class ProofResult(NamedTuple):
    """One result that a program established, or failed to."""

    name: str
    ok: bool
    detail: str
    measured: float | None = None
    bound: float | None = None

    def __str__(self) -> str:
        mark = "ok  " if self.ok else "FAIL"
        error = "" if self.measured is None else f" {self.measured:.1e} (bound {self.bound:.1e})"
        return f"{mark} {self.name}{error}" + (f": {self.detail}" if self.detail else "")


class World:
    """What a worker knows: who it is, its device, and where its results go.

    `results` must be the same list of names on every rank: a result holds if it holds on all of them.
    """

    def __init__(self, rank: int, size: int, device: torch.device, backend: str, timeout: float) -> None:
        self.rank = rank
        self.size = size
        self.device = device
        self.backend = backend
        self.timeout = timeout
        self.results: list[ProofResult] = []

    def stream(self) -> Any:
        """A CUDA stream for Transformer Engine's communication; on a CPU one that does nothing."""
        import torch

        from megatron_hcp.proofs.te_cpu.cuda import STREAM

        return torch.cuda.Stream() if self.device.type == "cuda" else STREAM

    def expect(self, name: str, ok: bool, detail: str = "") -> None:
        """Records whether something holds; `detail` says what was found."""
        self.results.append(ProofResult(name, bool(ok), detail))

    def expect_at_most(self, name: str, measured: float, bound: float, detail: str = "") -> None:
        """Records an error and its bound. NaN does not hold."""
        self.results.append(ProofResult(name, measured <= bound, detail, float(measured), float(bound)))

    def agreed_results(self) -> list[ProofResult]:
        """One list for all ranks: a result holds if it holds everywhere; the largest error counts. Collective."""
        import torch.distributed as dist

        everyone: list[list[ProofResult]] = [[] for _ in range(self.size)]
        dist.all_gather_object(everyone, self.results)
        names = [[result.name for result in results] for results in everyone]
        assert all(found == names[0] for found in names), f"the ranks did not do the same: {names}"
        return [_agreed(of_ranks) for of_ranks in zip(*everyone)]


def _agreed(of_ranks: tuple[ProofResult, ...]) -> ProofResult:
    failed = [rank for rank, result in enumerate(of_ranks) if not result.ok]
    # max() would drop a NaN
    worst = max(of_ranks, key=lambda r: (not r.ok, r.measured if r.measured is not None else 0.0))
    detail = worst.detail
    if failed and len(failed) < len(of_ranks):
        detail = f"on rank {', '.join(map(str, failed))}: {detail}"
    return worst._replace(ok=not failed, detail=detail)


@contextlib.contextmanager
def joined_world(rank: int, size: int, options: argparse.Namespace, store: str | None) -> Iterator[World]:
    """The default process group while the block runs: gloo on CPU, nccl where the attention runs on GPUs.

    Args:
        store: path of a new file through which the ranks of one machine find each other (no port is needed);
            None: as torchrun's environment says.
    """
    import torch
    import torch.distributed as dist

    device, backend = place_of(rank, size, getattr(options, "attention", REFERENCE))
    if device.type == "cpu":
        torch.set_num_threads(1)
    # Shorter than the overall timeout, so that a rank waiting for a hung one can still say where it waited.
    timeout = 0.75 * timedelta(seconds=options.timeout)
    if store is None:
        dist.init_process_group(backend, timeout=timeout)
    else:
        # A laptop's host name may resolve to a stale address; all ranks are local.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if os.uname().sysname == "Darwin" else "lo")
        dist.init_process_group(backend, store=dist.FileStore(store, size), rank=rank, world_size=size, timeout=timeout)
    try:
        yield World(rank, size, device, backend, timeout.total_seconds())
        # No rank leaves while another is still communicating with it.
        dist.barrier()
    finally:
        dist.destroy_process_group()


def place_of(rank: int, size: int, attention: str) -> tuple[torch.device, str]:
    """The device and the backend of a rank: the installed Transformer Engine runs on GPUs, all else on CPUs.

    Where a machine has one GPU, all of its processes share it, and exchange through the CPU.

    Raises:
        HcpError: there are fewer GPUs than processes on this machine, and more than one.
    """
    import torch

    if attention != TE:
        return torch.device("cpu"), "gloo"
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    wanted = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    found = torch.cuda.device_count()
    if found == 1 < wanted:
        from megatron_hcp.proofs import shared_gpu

        shared_gpu.register()
        torch.cuda.set_device(0)
        return torch.device("cuda", 0), shared_gpu.BACKEND
    if found < wanted:
        raise HcpError(f"--attention {attention} needs {wanted} GPUs or one, found {found}")
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank), "nccl"
