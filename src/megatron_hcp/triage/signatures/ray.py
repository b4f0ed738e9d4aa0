"""What Ray says about its workers."""

from __future__ import annotations

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
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        "ray.exceptions.OutOfMemoryError: the GPU is full",
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
        "The node with node id: ab12 and address: 10.0.0.2 and node name: n2 has been marked dead because the detector "
        "has missed too many heartbeats from it.",
        "The node with node id: ab12 was added",
        "sinfo -R and dmesg -T on {node}: the machine, its memory, or its network",
        tokens=(ERROR, b"marked dead", b"marked as dead", b"node has "),
    ),
    report(
        "ray-worker-exit",
        r"Worker exit detail: (?P<text>(?!Worker unexpectedly exits with a connection error)\S.{20,})",
        "Ray saw a worker end: {text}",
        "The actor is dead. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker exits unexpectedly. Worker exits "
        "with an exit code None. The worker may have exceeded K8s pod memory limits.",
        "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2.",
        _WORKER_LOG,
        "dmesg -T on {node} shows whether the kernel killed it because memory ran out; kubectl describe pod",
        tokens=(b"Worker exit detail: ",),
    ),
    report(
        "ray-worker-died",
        r"A worker died or was killed while executing a task|its (?:worker process|owner) has died|"
        r"Worker (?:unexpectedly exits|exits unexpectedly)",
        "a Ray worker process died without an exception of its own; Ray does not say why",
        "A worker died or was killed while executing a task by an unexpected system error.",
        "A worker was started",
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
        "ValueError: Total available GPUs 8 is less than total desired GPUs 16",
        "ValueError: Total available GPUs 8",
        "ray status: did every node join? does another job hold its resources?",
    ),
    fault(
        "ray-waits",
        r"resource request cannot be scheduled right now: (?P<what>.{1,200}?)\.(?: |$)",
        "the job waits for resources that the Ray cluster does not have free: {what}",
        "Warning: The following resource request cannot be scheduled right now: {'CPU': 0.2}. This is likely due to",
        "Warning: The following resource request was scheduled",
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
        'Failed to create runtime env: {"working_dir": "s3://a.zip"}, error message: not enough values to unpack',
        "Created the runtime env",
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
        "gcs_rpc_client.h:179: Failed to connect to GCS at address 172.23.15.13:20000 within 5 seconds.",
        "gcs_rpc_client.h:179: Connected to GCS at address 172.23.15.13:20000",
        "ray status on the head node; is the address that of its ray start --head, and its port open to the others?",
        tokens=(ERROR, b"GCS"),
        role="general",
        again="chance",
    ),
    effect(
        "ray-head-gone",
        r"Failed to connect to GCS within \d+ seconds|GCS may have been killed|Raylet is terminated",
        "Ray's head, or this node's raylet, ended while the job ran",
        "[2024-05-26 11:26:16,798 E 177479 178526] gcs_rpc_client.h:554: Failed to connect to GCS within 60 seconds. "
        "GCS may have been killed.",
        "gcs_rpc_client.h:554: Connected to GCS",
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
        "core_worker.cc:496: Failed to register worker to Raylet: IOError: [RayletClient] Unable to register worker",
        "core_worker.cc:496: registered",
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
        "2026-11-27 15:54:48,622 ERR scripts.py:1186 -- raylet [exit code=-9]",
        "scripts.py:1186 -- raylet",
        "its .out and .err in session_latest/logs say why; after -9, dmesg -T shows whether memory ran out on {node}",
        tokens=(b"[exit code=",),
        again="chance",
    ),
    fault(
        "ray-timeout",
        r"^(?:ray\.exceptions\.)?GetTimeoutError\b",
        "a call of a Ray actor took longer than the program waits for it; these lines do not say what the actor did",
        "ray.exceptions.GetTimeoutError: Get timed out: some object(s) not ready.",
        "GetTime: 3",
        "ray status: was the actor placed at all? py-spy dump of its process shows where it is",
        role="general",
        again="chance",
    ),
    fault(
        "ray-store-full",
        r"ObjectStoreFullError|OutOfDiskError|Failed to put object \S{1,100} in object store|"
        r"object store because it is full",
        "Ray's object store, or the disk that it spills to, is full",
        "ray.exceptions.ObjectStoreFullError: Failed to put object 00ff in object store because it is full.",
        "ray.exceptions.ObjectLostError: an object",
        "ray memory lists what holds objects; ray start --object-store-memory, a larger /dev/shm, and a --temp-dir "
        "with space",
    ),
    fault(
        "ray-signal",
        r"\*\*\* (?P<how>SIG(?:SEGV|BUS|ILL|FPE)) .{0,30}received",
        "a Ray worker crashed: {how}",
        "[2025-11-18 20:32:23,682 E 34 35] logging.cc:474: *** SIGSEGV received at time=1763469143 on cpu 89 ***",
        "logging.cc:474: *** SIGABRT received at time=1763469143 on cpu 89 ***",
        "the lines below it show where: an extension, or NCCL and its plugins",
        tokens=(b"*** SIG",),
        role="general",
        again="chance",
    ),
    effect(
        "ray-again",
        r"^ValueError: Failed to create placement group .{1,200} already exists",
        "Ray restarted the job's main task after it had died; its first death is what matters",
        "ValueError: Failed to create placement group 'global_poolverl_group_4:0' because name already exists.",
        "ValueError: Failed to create placement group",
        _WORKER_LOG,
    ),
    fault(
        "ray-told",
        r"RayTaskError\((?P<exc>\w{1,80})\): (?:(?!RayTaskError\().){1,600}?\b(?:\w{1,40}\.){0,6}(?P=exc): "
        r"(?P<text>\S.*)$",
        "a Ray worker raised {exc}: {text}",
        "ray.exceptions.RayTaskError(ValueError): ray::main_task() (pid=7, ip=10.0.0.1) ValueError: no tokens",
        "ray.exceptions.RayTaskError(ValueError): ray::main_task() (pid=7, ip=10.0.0.1)",
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
        "ray.exceptions.RayTaskError(ValueError): ray::TaskRunner.run()",
        "ValueError: bad ray",
        _WORKER_LOG,
        role="echo",
    ),
)
