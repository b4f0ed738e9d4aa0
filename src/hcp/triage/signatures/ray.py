"""What Ray says about its workers."""

from __future__ import annotations

from hcp.triage.signatures.row import ERROR, Signature, effect, fault, report

_WORKER_LOG = "look at the worker's own lines, under the same pid; Ray keeps them in session_latest/logs/worker-*"

RAY: tuple[Signature, ...] = (
    fault(
        "ray-memory",
        r"Workers? \(tasks / actors\) killed due to memory pressure|"
        r"Task was killed due to the node running low on memory",
        "the memory of a node was full, so Ray killed a worker",
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        "ray.exceptions.OutOfMemoryError: the GPU is full",
        "offload less to the host (parameters, optimizer, the rollout engine's sleep mode), or start fewer workers "
        "on a node",
        tokens=(b"illed",),
    ),
    report(
        "ray-worker-died",
        r"A worker died or was killed while executing a task|its worker process has died|"
        r"Worker unexpectedly exits with a connection error",
        "a Ray worker's process died, without an exception of its own; what of, Ray does not say",
        "A worker died or was killed while executing a task by an unexpected system error.",
        "A worker was started",
        _WORKER_LOG,
        "dmesg -T on {node} says whether the kernel killed it for want of memory",
        tokens=(b"illed", ERROR),
    ),
    fault(
        "ray-resources",
        r"[Nn]o available node types can fulfill resource request|"
        r"Total available GPUs \d{1,9} is less than total desired GPUs|"
        r"placement group (?:(?!placement group ).)*?(?:timed out|infeasible)",
        "the Ray cluster does not have the GPUs or CPUs that the job asks for",
        "ValueError: Total available GPUs 8 is less than total desired GPUs 16",
        "ValueError: Total available GPUs 8",
        "ray status: did every node join?",
    ),
    effect(
        "ray-wrapper",
        r"ray\.exceptions\.|ray::|ActorDiedError|RayTaskError",
        "Ray passes on a failure of a worker",
        "ray.exceptions.RayTaskError(ValueError): ray::TaskRunner.run()",
        "ValueError: bad ray",
        _WORKER_LOG,
        role="echo",
    ),
)
