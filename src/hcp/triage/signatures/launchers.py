"""What srun and torchrun report about a rank that ended."""

from __future__ import annotations

from hcp.triage.signatures.row import SACCT, Signature, fault, report

LAUNCHERS: tuple[Signature, ...] = (
    report(
        "srun-task",
        r"^(?P<host>[^:\s]+): tasks? (?P<tasks>[\d,-]+): (?P<how>.+)$",
        "srun saw task {tasks} on {host} end: {how}",
        "srun: error: n2: task 5: Killed",
        "srun: error: Unable to create step for job 12: Requested node configuration is not available",
        SACCT,
    ),
    report(
        "torchrun-worker",
        r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+)",
        "torchrun saw local rank {local} end with exit code {code}",
        "E0822 10:00:00.123000 12345 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: -9) "
        "local_rank: 1 (pid: 12360) of binary: /usr/bin/python",
        "I0822 exitcode is 0",
        SACCT,
        tokens=(b"exit",),
    ),
    report(
        "torchrun-root",
        r"Root Cause \(first observed failure\):",
        "torchrun's own account of the first failure",
        "Root Cause (first observed failure):",
        "Other Failures:",
        tokens=(b"Root Cause (first",),
    ),
    report(
        "process-ended",
        r"exits with return code = (?P<code>-?\d+)|exited with (?:exit )?code (?P<code2>-?\d+)\b|"
        r"command terminated with exit code (?P<code3>\d+)|^\s*Exit Code:\s{1,20}(?P<code4>[1-9]\d{0,2})$|"
        r"(?:line \d+:\s{0,4}\d+ )(?P<how>Killed|Segmentation fault|Bus error|Aborted)\b|"
        r"^(?P<how2>Killed|(?:Segmentation fault|Bus error|Aborted) \(core dumped\))$",
        "a launcher saw a process end",
        "[2023-08-21 10:11:12,345] [ERROR] [launch.py:434:sigkill_handler] ['/opt/conda/bin/python', 'train.py'] exits "
        "with return code = -9",
        "the handler exits with a return code",
        SACCT,
        tokens=(b"exit", b"illed", b"core dumped", b"Exit Code:"),
    ),
    fault(
        "srun-step",
        r"^(?P<why>Unable to (?:create step|confirm allocation|allocate resources).*|"
        r"Task launch .* failed.*|tasks? [\d,-]{1,200} launch failed: .*|"
        r"Application launch failed.*)",
        "srun could not start the step: {why}",
        "srun: error: Unable to create step for job 12: Requested node configuration is not available",
        "srun: error: n2: task 5: Killed",
        SACCT,
        role="general",
        again="chance",
    ),
    report(
        "step-aborted",
        r"^Job step aborted|^Force Terminated ",
        "srun ended the step after another failure",
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        "srun: job 12 queued and waiting for resources",
        SACCT,
        tokens=(b"step aborted",),
        role="echo",
    ),
)
