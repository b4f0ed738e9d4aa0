"""What Ray says about its workers."""

from __future__ import annotations

import re

from megatron_hcp.triage.line import Line
from megatron_hcp.triage.raised.frames import last_frame_below
from megatron_hcp.triage.scan import Hit
from megatron_hcp.triage.signatures.row import ERROR, Signature, effect, fault, report

_WORKER_LOG = "read the worker's own lines, under the same pid; Ray keeps them in session_latest/logs/worker-*"

WRAPPER = "ray-wrapper"
"""The row whose lines stand above the frames of another process."""

RAY: tuple[Signature, ...] = (
    fault(
        "ray-memory",
        r"Workers? \(tasks / actors\) killed due to memory pressure|exit_type ?= ?NODE_OUT_OF_MEMORY|"
        r"killed due to the node running low on memory|System memory low at node ",
        "a node's memory was full, so Ray killed a worker",
        "offload less to the host (parameters, optimizer, the rollout engine's sleep mode), or start fewer workers "
        "on a node",
        tokens=(b"illed", b"memory low"),
        at_any_level=True,
    ),
    report(
        "ray-node-died",
        r"NodeDiedError|"
        r"(?:^The node|The node with node id:) .{0,300}(?:has been marked dead|missed too many heartbeats)|"
        r"[Oo]wner's node has crashed|because its node has died|mistakenly been marked (?:as )?dead",
        "Ray lost a node: its raylet was killed, or stopped answering",
        "sinfo -R and dmesg -T on {node}: the machine, its memory, or its network",
        tokens=(ERROR, b"marked dead", b"marked as dead", b"node has "),
    ),
    report(
        "ray-worker-exit",
        r"Worker exit detail: (?P<text>(?!Worker unexpectedly exits with a connection error)\S.{20,})",
        "Ray saw a worker end: {text}",
        _WORKER_LOG,
        "dmesg -T on {node} shows whether the kernel killed it because memory ran out; kubectl describe pod",
        tokens=(b"Worker exit detail: ",),
    ),
    report(
        "ray-worker-died",
        r"A worker died or was killed while executing a task|its (?:worker process|owner) has died|"
        r"Worker (?:unexpectedly exits|exits unexpectedly)",
        "a Ray worker process died without an exception of its own; Ray does not say why",
        _WORKER_LOG,
        "dmesg -T on {node} shows whether the kernel killed it because memory ran out",
        tokens=(b"illed", ERROR, b"has died"),
    ),
    fault(
        "ray-resources",
        r"[Nn]o available node types can fulfill resource request|"
        r"Total available GPUs \d{1,9} is less than total desired GPUs|"
        r"placement group (?:(?!placement group ).)*?(?:timed out|infeasible)|"
        r"Cannot provide a placement group of|required (?:\w+ )?GPUs exceeds the total number of available|"
        r"Current node has no GPU available",
        "the Ray cluster does not have the GPUs or CPUs that the job asks for",
        "ray status: did every node join? does another job hold its resources?",
    ),
    fault(
        "ray-waits",
        r"resource request cannot be scheduled right now: (?P<what>.{1,200}?)\.(?: |$)",
        "the job waits for resources that the Ray cluster does not have free: {what}",
        "ray status: did every node join? does another job hold its resources?",
        tokens=(b"cannot be scheduled right now",),
        role="stall",
        again="chance",
        at_any_level=True,
    ),
    fault(
        "ray-environment",
        r"Failed to (?:create|set ?up) (?:the )?runtime[_ ]env(?:ironment)?\b(?P<text>.{0,300})|"
        r"runtime environment .{0,60}failed to be|runtime_env setup failed(?P<text2>.{0,300})",
        "Ray could not set up a runtime environment{text}{text2}",
        "the lines below it and session_latest/logs/runtime_env_agent.log say why: a package that pip does not find, a "
        "working directory that is too large, no network",
        tokens=(ERROR, b"runtime env", b"runtime_env"),
    ),
    fault(
        "ray-head",
        r"Failed to connect to GCS at address (?P<where>\S{1,100})|Timed out while waiting for GCS to become available|"
        r"Could not find any running Ray instance|Failed to get cluster ID from GCS|"
        r"ConnectionError: Could not (?:read .{1,40} from|connect to) (?:the )?GCS",
        "Ray's head node does not answer ({where}): it was not started, has ended, or cannot be reached from this node",
        "ray status on the head node; is the address that of its ray start --head, and its port open to the others?",
        tokens=(ERROR, b"GCS"),
        role="general",
        again="chance",
    ),
    effect(
        "ray-head-gone",
        r"Failed to connect to GCS within \d+ seconds|GCS may have been killed|Raylet is terminated",
        "Ray's head, or this node's raylet, ended while the job ran",
        "session_latest/logs/gcs_server.out and raylet.out on the head node; dmesg -T shows whether its memory ran out",
        tokens=(b"GCS", b"Raylet is"),
        role="origin",
    ),
    fault(
        "ray-start",
        r"Failed to register worker|Unable to register worker with raylet|not registered within the timeout|"
        r"Version mismatch: The cluster was started with|Failed to get the system config from raylet|"
        r"The current node timed out during startup|No available agent to submit job|"
        r"Ray processes died unexpectedly",
        "Ray did not start on a node, or its workers crashed at startup",
        "give Ray the CPUs of the allocation (ray start --num-cpus=$SLURM_CPUS_ON_NODE), a short, empty "
        "--temp-dir, and a high enough process limit (ulimit -u)",
        "the cause is in session_latest/logs (raylet.err, gcs_server.err, python-core-worker-*)",
        tokens=(ERROR, b"not registered within", b"processes died", b"timed out during"),
        role="general",
    ),
    fault(
        "ray-process",
        r"\b(?P<what>raylet|gcs_server|log_monitor|monitor|dashboard|ray_client_server) "
        r"\[exit code=(?P<code>-?\d{1,3})\]",
        "Ray's {what} ended",
        "its .out and .err in session_latest/logs say why; after -9, dmesg -T shows whether memory ran out on {node}",
        tokens=(b"[exit code=",),
        again="chance",
    ),
    fault(
        "ray-timeout",
        r"^(?:ray\.exceptions\.)?GetTimeoutError\b",
        "a call of a Ray actor took longer than the program waits for it; these lines do not say what the actor did",
        "ray status: was the actor placed at all? py-spy dump of its process shows where it is",
        role="general",
        again="chance",
    ),
    fault(
        "ray-store-full",
        r"ObjectStoreFullError|OutOfDiskError|Failed to put object \S{1,100} in object store|"
        r"object store because it is full",
        "Ray's object store, or the disk that it spills to, is full",
        "ray memory lists what holds objects; ray start --object-store-memory, a larger /dev/shm, and a --temp-dir "
        "with space",
    ),
    fault(
        "ray-signal",
        r"\*\*\* (?P<how>SIG(?:SEGV|BUS|ILL|FPE)) .{0,30}received",
        "a Ray worker crashed: {how}",
        "the lines below it show where: an extension, or NCCL and its plugins",
        tokens=(b"*** SIG",),
        role="general",
        again="chance",
    ),
    effect(
        "ray-again",
        r"^ValueError: Failed to create placement group .{1,200} already exists",
        "Ray restarted the job's main task after it had died; its first death is what matters",
        _WORKER_LOG,
    ),
    fault(
        "ray-told",
        r"RayTaskError\((?P<exc>\w{1,80})\): (?:(?!RayTaskError\().){1,600}?\b(?:\w{1,40}\.){0,6}(?P=exc): "
        r"(?P<text>\S.*)$",
        "a Ray worker raised {exc}: {text}",
        _WORKER_LOG,
        tokens=(b"RayTaskError(",),
        role="general",
        again="chance",
    ),
    effect(
        WRAPPER,
        r"ray\.exceptions\.(?:RayTaskError\((?P<exc>\w{1,80})\))?|ray::|ActorDiedError|RayTaskError|"
        r"(?:WorkerGroup|TrainingFailed|Controller)Error\b",
        "Ray reports the failure of a worker ({exc}); these lines do not say more",
        _WORKER_LOG,
        role="echo",
    ),
)

_WORKERS = ("ray-worker-died", "ray-worker-exit", "ray-memory")
_OF_NODE = re.compile(rb"Memory on the node \(IP: ([\d.]{7,15}),")
_OF_WORKER = re.compile(r"^\W{0,8}(pid|ip): (\S{1,60})$", re.M)


def said_around(signature: str, hit: Hit, line: Line) -> dict[str, str]:
    """Of a row of this table, what the lines around a match say: where another process raised it; the node and the
    process id of a worker that died, from the list of its properties that Ray prints above."""
    if signature == WRAPPER:
        return {"at": last_frame_below(hit, line)}
    if signature not in _WORKERS:
        return {}
    said = dict(_OF_WORKER.findall(hit.before()[-1000:]))
    if below := _OF_NODE.search(hit.chunk, hit.at, hit.at + 2000):
        said.setdefault("ip", below[1].decode())
    return {name: said[key] for name, key in (("host", "ip"), ("victim", "pid")) if key in said}
