"""The inside of a worker process: joins the world, picks its device, and leaves cleanly."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist

from hcp.core.errors import HcpError
from hcp.proofs.program import World


@contextlib.contextmanager
def joined_world(rank: int, size: int, options: argparse.Namespace, store: str | None) -> Iterator[World]:
    """The default process group while the block runs: gloo on CPU, nccl where the attention runs on GPUs.

    Args:
        store: path of a new file through which the ranks of one machine find each other (no port is needed);
            None: as torchrun's environment says.
    """
    device, backend = place_of(rank, size, getattr(options, "attention", "reference"))
    if device.type == "cpu":
        torch.set_num_threads(1)
    # Before everything is ended: so a rank that waits for one that hangs can still say where it waited.
    timeout = 0.75 * timedelta(seconds=options.timeout)
    if store is None:
        dist.init_process_group(backend, timeout=timeout)
    else:
        # A laptop's host name may resolve to an address that is gone; all ranks are here.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if os.uname().sysname == "Darwin" else "lo")
        dist.init_process_group(backend, store=dist.FileStore(store, size), rank=rank, world_size=size, timeout=timeout)
    try:
        yield World(rank, size, device, backend, timeout.total_seconds())
        # No rank leaves while another still talks to it.
        dist.barrier()
    finally:
        dist.destroy_process_group()


def place_of(rank: int, size: int, attention: str) -> tuple[torch.device, str]:
    """The device and the backend of a rank: the reference attention runs on CPUs, Transformer Engine's on GPUs.

    Raises:
        HcpError: there are fewer GPUs than processes on this machine.
    """
    if attention == "reference":
        return torch.device("cpu"), "gloo"
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    wanted = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    if torch.cuda.device_count() < wanted:
        raise HcpError(f"--attention {attention} needs {wanted} GPUs, found {torch.cuda.device_count()}")
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank), "nccl"
