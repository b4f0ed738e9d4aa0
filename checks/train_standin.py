"""Stands in for a trainer in tests of the job around it: real process groups, checkpoints, signals, failures.

Takes Megatron-LM's flags (unknown ones are ignored), builds the groups of hierarchical CP over all ranks with gloo or
NCCL, and adds up numbers through both levels in every step, so that the sum after N steps does not depend on
interruptions. On SIGTERM it finishes the step, saves, and exits with 0, as Megatron-LM does with --exit-signal-handler;
--wait-at makes it wait at a step for that signal, however long it takes. --fail-* make one rank fail once.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path


def main() -> int:
    options = _options()
    import torch
    import torch.distributed as dist

    from megatron_hcp.core.ranks import grids_of
    from megatron_hcp.runtime.groups import GroupBuilder

    asked_to_end = []
    signal.signal(signal.SIGTERM, lambda *_: asked_to_end.append(True))
    rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timedelta(seconds=options.timeout))
    state = _load(options.load)
    sizes = tuple(options.hierarchical_context_parallel_sizes or [options.context_parallel_size])
    grids = grids_of(
        world,
        tp=options.tensor_model_parallel_size,
        cp=options.context_parallel_size,
        pp=options.pipeline_model_parallel_size,
    )
    cp_groups = grids.groups("cp").lists()
    members = next(group for group in cp_groups if rank in group)
    with GroupBuilder(options.timeout) as builder:
        levels = builder.build_levels(cp_groups, sizes)
        while state["step"] < options.train_iters:
            begun = time.perf_counter()
            _fail(options, rank, state["step"])
            time.sleep(options.step_seconds)
            value = torch.tensor([float(rank)], dtype=torch.float64, device=device)
            for group in levels:
                dist.all_reduce(value, group=group)
            assert value.item() == sum(members), (rank, value.item(), members)
            state = {"step": state["step"] + 1, "sum": state["sum"] + (state["step"] + 1) * sum(range(world))}
            if rank == world - 1:
                now, milliseconds = time.strftime("%Y-%m-%d %H:%M:%S"), (time.perf_counter() - begun) * 1000
                print(
                    f" [{now}] iteration {state['step']:8d}/{options.train_iters:8d} | "
                    f"elapsed time per iteration (ms): {milliseconds:.1f} |",
                    flush=True,
                )
            _wait(options, state["step"], asked_to_end)
            ending = torch.tensor([float(bool(asked_to_end))], device=device)
            dist.all_reduce(ending, dist.ReduceOp.MAX)
            if ending.item() or state["step"] % options.save_interval == 0 or state["step"] == options.train_iters:
                _save(options.save, state, rank, options.save_seconds if ending.item() else 0)
                dist.barrier()
            if ending.item():
                print("exiting program after receiving SIGTERM.", flush=True)
                break
    dist.destroy_process_group()
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="train_standin.py", description=__doc__)
    parser.add_argument("--tensor-model-parallel-size", type=int, default=1)
    parser.add_argument("--pipeline-model-parallel-size", type=int, default=1)
    parser.add_argument("--context-parallel-size", type=int, default=1)
    parser.add_argument("--hierarchical-context-parallel-sizes", type=int, nargs="+")
    parser.add_argument("--train-iters", type=int, default=5)
    parser.add_argument("--save-interval", type=int, default=1000)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--load", type=Path)
    parser.add_argument("--step-seconds", type=float, default=0.0)
    parser.add_argument("--wait-at", type=int, default=-1, help="after this step, wait for the signal to exit")
    parser.add_argument("--save-seconds", type=float, default=0.0, help="how long the final save takes")
    parser.add_argument("--timeout", type=float, default=120.0)
    parser.add_argument("--fail-rank", type=int, default=-1)
    parser.add_argument("--fail-step", type=int, default=0)
    parser.add_argument("--fail-how", choices=("raise", "kill", "segfault", "hang"), default="raise")
    parser.add_argument("--fail-once", type=Path, help="a file that records that the failure has happened")
    return parser.parse_known_args()[0]


def _load(folder: Path | None) -> dict[str, float]:
    tracker = folder / "latest_checkpointed_iteration.txt" if folder else None
    if tracker is None or not tracker.is_file():
        return {"step": 0, "sum": 0}
    assert folder is not None
    return json.loads((folder / f"iter_{int(tracker.read_text()):07d}.json").read_text())


def _save(folder: Path | None, state: dict[str, float], rank: int, seconds: float) -> None:
    if folder is None or rank != 0:
        return
    folder.mkdir(parents=True, exist_ok=True)
    time.sleep(seconds)
    (folder / f"iter_{int(state['step']):07d}.json").write_text(json.dumps(state))
    (folder / "latest_checkpointed_iteration.txt").write_text(str(int(state["step"])))


def _wait(options: argparse.Namespace, step: float, asked_to_end: list[bool]) -> None:
    patience = time.monotonic() + options.timeout
    while step == options.wait_at and not asked_to_end and time.monotonic() < patience:
        time.sleep(0.02)


def _fail(options: argparse.Namespace, rank: int, step: float) -> None:
    if rank != options.fail_rank or step != options.fail_step:
        return
    if options.fail_once is not None:
        if options.fail_once.exists():
            return
        options.fail_once.touch()
    if options.fail_how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if options.fail_how == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if options.fail_how == "hang":
        time.sleep(3600)
    raise RuntimeError("CUDA error: uncorrectable ECC error encountered")


if __name__ == "__main__":
    sys.exit(main())
