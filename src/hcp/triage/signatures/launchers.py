"""What srun and torchrun report about a rank that ended."""

from __future__ import annotations

from hcp.triage.signatures.row import SACCT, Signature, fault, report

LAUNCHERS: tuple[Signature, ...] = (
    report(
        "srun-task",
        r"^srun: error: (?P<host>[^:\s]+): tasks? (?P<tasks>[\d,-]+): (?P<how>.+)$",
        "srun saw task {tasks} on {host} end: {how}",
        "srun: error: n2: task 5: Killed",
        "srun: error: Unable to create step for job 12: Requested node configuration is not available",
        SACCT,
        token=b"srun: error",
    ),
    report(
        "torchrun-worker",
        r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+)",
        "torchrun saw local rank {local} end with exit code {code}",
        "E0822 10:00:00.123000 12345 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: -9) "
        "local_rank: 1 (pid: 12360) of binary: /usr/bin/python",
        "I0822 exitcode is 0",
        SACCT,
        token=b"exitcode",
    ),
    report(
        "torchrun-root",
        r"Root Cause \(first observed failure\):",
        "torchrun's own account of the first failure",
        "Root Cause (first observed failure):",
        "Other Failures:",
        token=b"Root Cause (first",
    ),
    fault(
        "srun-step",
        r"^srun: error: (?P<why>Unable to (?:create step|confirm allocation).*|Task launch .* failed.*|"
        r"Application launch failed.*|Job step aborted.*)",
        "srun could not start the step: {why}",
        "srun: error: Unable to create step for job 12: Requested node configuration is not available",
        "srun: error: n2: task 5: Killed",
        SACCT,
        token=b"srun: error",
        generic=True,
    ),
)
