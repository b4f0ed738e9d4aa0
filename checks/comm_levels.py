"""Tests the communication in every level of hierarchical CP where a job will run, the inner (a2a) groups first.

Run it as the job runs its ranks: one process per rank, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set. The
ranks of an inner group exchange numbers all-to-all, and those of an outer group pass them around a ring, as attention
does. Exit status: 0 all groups work, 1 a group does not, 2 could not run.
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
    parser.add_argument("--megabytes", type=float, default=0.0, help="sent to every peer; 0: 1, or 32 with --min-gbps")
    parser.add_argument("--min-gbps", type=float, default=0.0, help="Gbit/s that every rank must send at every level")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds after which a group counts as broken")
    options = parser.parse_args()
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        print(f"comm_levels.py: {error}; wanted torch; install it where the job runs", file=sys.stderr)
        return 2
    from megatron_hcp.core.ranks import grids_of
    from megatron_hcp.ground.errors import HcpError
    from megatron_hcp.runtime.groups import GroupBuilder

    rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timedelta(seconds=options.timeout))
    megabytes = options.megabytes or (32.0 if options.min_gbps else 1.0)
    try:
        cp = options.cp or world
        sizes = tuple(int(size) for size in options.hcp.split(",")) if options.hcp else (cp,)
        groups = grids_of(world, tp=options.tp, cp=cp, pp=options.pp, order=options.order).groups("cp").lists()
        failed = False
        with GroupBuilder(options.timeout) as builder:
            levels = builder.build_levels(groups, sizes)
            for level, group in enumerate(levels):
                kind = "a2a" if level == 0 else "p2p"
                seconds, ok = _exchange(group, kind, device, megabytes)
                for _ in range(3 if options.min_gbps else 0):  # the first also sets the connections up
                    again = _exchange(group, kind, device, megabytes)
                    seconds, ok = min(seconds, again[0]), ok and again[1]
                worst, right, slowest = _worst(seconds, ok, device)
                gbps = _sent_megabytes(kind, dist.get_world_size(group), megabytes) * 2**20 * 8 / worst / 1e9
                fast = gbps >= options.min_gbps
                failed = failed or not right or not fast
                if rank == 0 and not fast:
                    print(
                        f"comm_levels.py: level {level} ({kind}): rank {slowest} sends {gbps:.1f} Gbit/s; wanted "
                        f"{options.min_gbps:g}; check its node's links, or lower --comm-gbps",
                        file=sys.stderr,
                    )
                if rank == 0:
                    print(
                        "hcp-job: "
                        + json.dumps(
                            {
                                "event": "level",
                                "level": level,
                                "kind": kind,
                                "size": dist.get_world_size(group),
                                "ok": right and fast,
                                "slowest_ms": round(worst * 1000, 2),
                                "slowest_rank": slowest,
                                "gbps": round(gbps, 2),
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


def _worst(seconds: float, ok: bool, device) -> tuple[float, bool, int]:
    """Over all ranks: the longest time, whether all data was right, and the rank that took longest."""
    import torch
    import torch.distributed as dist

    mine = torch.tensor([seconds, float(ok)], dtype=torch.float64, device=device)
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    times = [float(each[0]) for each in every]
    return max(times), all(bool(each[1]) for each in every), times.index(max(times))


def _sent_megabytes(kind: str, size: int, megabytes: float) -> float:
    """How a rank in a group of `size` sends: a message to each other rank, or the whole buffer around the ring."""
    return (size - 1) * megabytes * (size if kind == "p2p" else 1)


def _all_to_all(mine, group):
    """What every rank of the group sent here, in rank order: [size, length]; `mine` has a row for each rank."""
    import torch
    import torch.distributed as dist

    theirs = torch.empty_like(mine)
    dist.all_to_all_single(theirs, mine, group=group)
    return theirs


def _ring(mine, group):
    """The same after size - 1 steps to the next rank, as attention passes keys and values on."""
    import torch
    import torch.distributed as dist

    ranks = dist.get_process_group_ranks(group)
    place, size = ranks.index(dist.get_rank()), len(ranks)
    following, before = ranks[(place + 1) % size], ranks[place - 1]
    theirs = mine.clone()
    # Whole rows travel: row r of the buffer is for the rank at place r.
    passing = mine
    for step in range(1, size):
        arriving = torch.empty_like(passing)
        operations = [
            dist.P2POp(dist.isend, passing, following, group),
            dist.P2POp(dist.irecv, arriving, before, group),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        passing = arriving
        theirs[(place - step) % size] = passing[place]
    theirs[place] = mine[place]
    return theirs


_PATTERNS = {"a2a": _all_to_all, "p2p": _ring}
"""How each level of hierarchical CP communicates: the inner one all-to-all, the outer one around a ring."""


def _exchange(group, kind, device, megabytes: float) -> tuple[float, bool]:
    """Seconds for one exchange in the level's pattern, and whether the right data arrived.

    Every rank has a message for every other rank: a number made from both, so that a misrouted one is noticed.
    """
    import torch
    import torch.distributed as dist

    ranks, me = dist.get_process_group_ranks(group), dist.get_rank()
    length = max(1, int(megabytes * 2**20 / 4))

    def messages(pairs):
        numbers = [sender * dist.get_world_size() + receiver for sender, receiver in pairs]
        return (
            torch.tensor(numbers, dtype=torch.int32, device=device)
            .repeat_interleave(length)
            .reshape(len(ranks), length)
        )

    mine = messages([(me, other) for other in ranks])
    dist.barrier(group)
    begun = time.perf_counter()
    theirs = _PATTERNS[kind](mine, group)
    if device.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - begun
    return seconds, bool(torch.equal(theirs, messages([(other, me) for other in ranks])))


if __name__ == "__main__":
    sys.exit(main())
