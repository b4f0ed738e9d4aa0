"""Runs `hcp triage` on logs of jobs that failed or ran without context parallelism: it must name the first cause."""

from __future__ import annotations

import json
import sys
from typing import Any

from outcomes import Outcomes, run_parts
from slurm_standin import run_hcp

_START = (
    'hcp-job: {"event": "start", "job": "12", "attempt": 0, "start": "srun", "nodes": ["n1", "n2"], '
    '"gpus_per_node": 8}\n'
)
_NOISE = "".join(
    f"{rank}: [rank{rank}]: RuntimeError: [x/pair.cc:553] Connection closed by peer [127.0.0.1]:3456\n"
    for rank in (0, 3, 9)
)
_LOGS = {
    "sizes that do not multiply to CP, behind what the other ranks said": (
        _NOISE + "12: [rank12]: Traceback (most recent call last):\n"
        "12: [rank12]:     assert np.prod(hierarchical_context_parallel_sizes) == context_parallel_size\n"
        "12: [rank12]: AssertionError\nsrun: error: n2: task 12: Exited with exit code 1\n",
        ("HCP002", 12, "n2"),
    ),
    "a head split that does not divide": (
        "5: [rank5]: RuntimeError: shape '[1024, 1, 4, 0, 128]' is invalid for input of size 262144\n" + _NOISE,
        ("HCP007", 5, "n1"),
    ),
    "more than one launcher on a node": (
        "8: torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
        "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n" + _NOISE,
        ("SLURM004", 8, "n2"),
    ),
    "a rank that was killed without a word": (_NOISE + "srun: error: n2: task 11: Killed\n", (None, 11, "n2")),
    "a machine fault after good steps": (
        " [2026-08-22 10:00:00] iteration        7/    5000 | elapsed time per iteration (ms): 9000.0 |\n"
        "14: [rank14]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n" + _NOISE,
        (None, 14, "n2"),
    ),
}
_STEP = (
    " [2026-08-22 10:00:{second:02}] iteration {second:8}/    5000 | elapsed time per iteration (ms): 9000.0 | "
    "throughput per GPU (TFLOP/s/GPU): {speed:.1f} |\n"
)


def first_cause(outcomes: Outcomes) -> None:
    """The rank and node that failed first, and the rule for the cause, whatever the other ranks logged."""
    for name, (log, wanted) in _LOGS.items():
        failure = _triage(outcomes, _START + log).get("first_failure") or {}
        outcomes.expect_equal(name, (failure.get("rule"), failure.get("rank"), failure.get("node")), wanted)
        outcomes.expect(f"{name}: a next step is named", bool(failure.get("next")), f"{failure}")
    healthy = _triage(outcomes, _START + _STEP.format(second=1, speed=400.0))
    outcomes.expect_equal("a healthy log has no failure", (healthy["ok"], healthy["first_failure"]), (True, None))


def context_parallelism(outcomes: Outcomes) -> None:
    """More FLOP/s than the hardware can deliver means that context parallelism is off."""
    for speed, state in ((1937.0, "off"), (400.0, "unknown")):
        log = "".join(_STEP.format(second=second, speed=speed) for second in range(1, 10))
        found = _triage(outcomes, _START + log, "--assume", "arch=sm90", "--assume", "cp=16")["context_parallel"]
        outcomes.expect_equal(f"{speed:g} TFLOP/s per GPU on sm90: {state}", found["state"], state)


def _triage(outcomes: Outcomes, log: str, *options: str) -> dict[str, Any]:
    (outcomes.folder / "job.log").write_text(log)
    done = run_hcp("triage", "job.log", "--format", "json", *options, folder=outcomes.folder)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"hcp triage ended with {done.returncode}: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    sys.exit(run_parts("dead_jobs", __doc__, (first_cause, context_parallelism)))
