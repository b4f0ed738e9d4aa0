"""Trains with a rendered job on two nodes, kills a rank of one job, and interrupts another: nothing may be lost.

The job is written by `hcp render` and run with bash on the Slurm stand-in of slurm_standin.py; the trainer is
train_standin.py with real process groups (gloo). Two ranks per node have hierarchical CP across the nodes; the
interrupted job has one per node, because its ranks start four times and spend most of their time importing torch.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

from outcomes import Outcomes, run_parts
from slurm_standin import StandinSlurm, run_hcp

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.resources import pack_dir

_LAUNCHES = {
    1: ("--context-parallel-size", "2", "--exit-signal-handler"),
    2: (
        "--context-parallel-size",
        "4",
        "--cp-comm-type",
        "a2a+p2p",
        "--hierarchical-context-parallel-sizes",
        "2",
        "2",
        "--exit-signal-handler",
    ),
}
"""By the number of ranks per node."""


def trains(outcomes: Outcomes) -> None:
    """Started by srun or torchrun, the job trains and reports it in its verdict; on request, it tests groups first."""
    for start, options in (("srun", ("--comm-test",)), ("torchrun", ())):
        slurm, script = _job(outcomes.folder / start, start, 4, *options)
        ended = slurm.run(script)
        outcomes.expect_equal(f"{start}: completed", (ended.code, ended.verdict.get("status")), (0, "completed"))
        levels = re.findall(r'"level": (\d), "kind": "(\w+)", "size": (\d), "ok": (\w+)', ended.log)
        outcomes.expect_equal(
            f"{start}: the levels of groups that were tested first",
            levels,
            [("0", "a2a", "2", "true"), ("1", "p2p", "2", "true")] if options else [],
        )
        outcomes.expect_equal(f"{start}: the sum over all steps and ranks", _saved(slurm), _total(4, ranks=4))


def killed_rank(outcomes: Outcomes) -> None:
    """A killed rank ends the job instead of leaving the others waiting, and `hcp triage` names the rank."""
    slurm, script = _job(
        outcomes.folder / "job",
        "srun",
        400,
        "--requeue",
        "2",
        trainer=("--fail-rank", "3", "--fail-step", "2", "--fail-how", "kill", "--step-seconds", "0.1"),
    )
    ended = slurm.run(script)
    outcomes.expect_equal(
        "the job failed, by itself", (ended.code in (0, None), ended.verdict.get("status")), (False, "failed")
    )
    done = run_hcp("triage", "--format", "json", "logs", folder=slurm.folder)
    failure = (json.loads(done.stdout) if done.stdout.startswith("{") else {}).get("first_failure") or {}
    outcomes.expect_equal(
        "hcp triage names the rank and its node", (failure.get("rank"), failure.get("node")), (3, "n2")
    )


def interrupted(outcomes: Outcomes) -> None:
    """A job that gets Slurm's signal is requeued and completes every step once: none lost, none repeated."""
    for start in ("srun", "torchrun"):
        slurm, script = _job(
            outcomes.folder / start, start, 20, "--requeue", "1", per_node=1, trainer=("--wait-at", "5")
        )
        first = slurm.run(script, after=lambda said: said.count("elapsed time") >= 5)
        outcomes.expect_equal(
            f"{start}: preempted and requeued", (first.verdict.get("status"), first.is_requeued), ("preempted", True)
        )
        saved = _saved(slurm).get("step", 0)
        outcomes.expect_equal(f"{start}: saved in the middle", saved, 5)
        if not first.is_requeued or saved != 5:
            continue  # it would start at the beginning, and wait at step 5 for a signal again
        second = slurm.run(script, 1)
        outcomes.expect_equal(f"{start}: completed", (second.code, second.verdict.get("status")), (0, "completed"))
        steps = [int(number) for number in re.findall(r"iteration\s+(\d+)/", first.training + second.training)]
        outcomes.expect_equal(f"{start}: every step once", steps, list(range(1, 21)))
        outcomes.expect_equal(f"{start}: the sum over all steps and ranks", _saved(slurm), _total(20, ranks=2))


def _job(
    folder: Path, start: str, iters: int, *site: str, per_node: int = 2, trainer: tuple[str, ...] = ()
) -> tuple[StandinSlurm, Path]:
    if importlib.util.find_spec("torch") is None:
        raise HcpError("found no torch", wanted="it for the process groups", do="install it")
    slurm = StandinSlurm(folder, tasks_per_node=per_node)
    checkpoints = "checkpoints"  # not a path below /tmp: that is what other nodes would not see (SLURM005)
    words = (
        *_LAUNCHES[per_node],
        "--train-iters",
        str(iters),
        "--save-interval",
        "1000",
        "--eval-interval",
        "1000",
        "--save",
        checkpoints,
        "--load",
        checkpoints,
        *trainer,
    )
    return slurm, slurm.render(
        start=start, launch=words, site=("--program", str(pack_dir("checks") / "train_standin.py"), *site)
    )


def _saved(slurm: StandinSlurm) -> dict[str, Any]:
    tracker = slurm.folder / "checkpoints" / "latest_checkpointed_iteration.txt"
    if not tracker.is_file():
        return {}
    saved: dict[str, Any] = json.loads((tracker.parent / f"iter_{int(tracker.read_text()):07d}.json").read_text())
    return saved


def _total(steps: int, ranks: int) -> dict[str, int]:
    return {"step": steps, "sum": sum(range(1, steps + 1)) * sum(range(ranks))}


if __name__ == "__main__":
    sys.exit(run_parts("rendered_job", __doc__, (trains, killed_rank, interrupted)))
