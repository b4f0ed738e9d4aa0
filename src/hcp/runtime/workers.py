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
from hcp.runtime.program import World


@contextlib.contextmanager
def joined_world(rank: int, size: int, options: argparse.Namespace, store: str | None) -> Iterator[World]:
    """The default process group while the block runs: gloo on CPU, nccl where the attention runs on GPUs.

    Args:
        store: path of a new file through which the ranks of one machine find each other (no port is needed);
            None: as torchrun's environment says.
    """
    on_gpu = getattr(options, "attention", "reference") != "reference"
    device = _gpu(rank, size) if on_gpu else torch.device("cpu")
    backend = "nccl" if on_gpu else "gloo"
    if not on_gpu:
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


def _gpu(rank: int, size: int) -> torch.device:
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    wanted = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    if torch.cuda.device_count() < wanted:
        raise HcpError(f"--attention transformer-engine needs {wanted} GPUs, found {torch.cuda.device_count()}")
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)
