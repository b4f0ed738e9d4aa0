"""Tests the communication of every level of hierarchical CP where a job will run: the inner (a2a) groups first.

Run it as the job runs its ranks: one process per rank, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set. Every
rank sends every other rank of its inner group its own number (all-to-all), then the ring of its outer group passes
numbers on. Exit status: 0 all groups work, 1 one does not, 2 could not run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from datetime import timedelta


def main() -> int:
    parser = argparse.ArgumentParser(prog="comm_levels.py", description=__doc__)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--cp", type=int, default=0, help="0: all ranks")
    parser.add_argument("--pp", type=int, default=1)
    parser.add_argument("--hcp", default="", help="INNER,OUTER; empty: one level")
    parser.add_argument("--order", default="tp-cp-ep-dp-pp")
    parser.add_argument("--megabytes", type=float, default=1.0, help="sent to every peer")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds until a group counts as broken")
    options = parser.parse_args()
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        print(f"comm_levels.py: {error}; wanted torch; install it where the job runs", file=sys.stderr)
        return 2
    from hcp.core.errors import HcpError
    from hcp.core.ranks import grids_of
    from hcp.runtime.groups import GroupBuilder

    rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timedelta(seconds=options.timeout))
    try:
        cp = options.cp or world
        sizes = tuple(int(size) for size in options.hcp.split(",")) if options.hcp else (cp,)
        groups = grids_of(world, tp=options.tp, cp=cp, pp=options.pp, order=options.order).groups("cp").lists()
        failed = False
        with GroupBuilder(options.timeout) as builder:
            levels = builder.build_levels(groups, sizes)
            for level, group in enumerate(levels):
                seconds, ok = _exchange(group, device, options.megabytes)
                worst = torch.tensor([seconds, 0.0 if ok else 1.0], device=device)
                dist.all_reduce(worst, dist.ReduceOp.MAX)
                failed = failed or bool(worst[1])
                if rank == 0:
                    print(
                        "hcp-job: "
                        + json.dumps(
                            {
                                "event": "level",
                                "level": level,
                                "kind": "a2a" if level == 0 else "p2p",
                                "size": dist.get_world_size(group),
                                "ok": not bool(worst[1]),
                                "slowest_ms": round(float(worst[0]) * 1000, 2),
                            }
                        ),
                        flush=True,
                    )
    except HcpError as error:
        print(f"comm_levels.py: {error}", file=sys.stderr)
        return 2
    finally:
        dist.destroy_process_group()
    return 1 if failed else 0


def _exchange(group, device, megabytes: float) -> tuple[float, bool]:
    """Seconds of one exchange with every peer of the group, and whether what arrived is right.

    Point to point, which gloo has too (it has no all-to-all): every pair of the group is used once in each direction.
    """
    import torch
    import torch.distributed as dist

    ranks, me = dist.get_process_group_ranks(group), dist.get_rank()
    length = max(1, int(megabytes * 2**20 / 4))
    mine = torch.full((length,), float(me), device=device)
    theirs = {rank: torch.empty(length, device=device) for rank in ranks if rank != me}
    dist.barrier(group)
    begun = time.perf_counter()
    operations = [dist.P2POp(dist.isend, mine, rank, group) for rank in theirs]
    operations += [dist.P2POp(dist.irecv, buffer, rank, group) for rank, buffer in theirs.items()]
    for work in dist.batch_isend_irecv(operations) if operations else []:
        work.wait()
    if device.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - begun
    return seconds, all(bool((buffer == float(rank)).all()) for rank, buffer in theirs.items())


if __name__ == "__main__":
    sys.exit(main())
