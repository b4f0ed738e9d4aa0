"""What Ray says about its workers."""

from __future__ import annotations

from hcp.triage.signatures.row import ERROR, Signature, effect, fault, report

_WORKER_LOG = "read the worker's own lines, under the same pid; Ray keeps them in session_latest/logs/worker-*"

RAY: tuple[Signature, ...] = (
    fault(
        "ray-memory",
        r"Workers? \(tasks / actors\) killed due to memory pressure|"
        r"Task was killed due to the node running low on memory",
        "a node's memory was full, so Ray killed a worker",
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
        "a Ray worker process died without an exception of its own; Ray does not say why",
        "A worker died or was killed while executing a task by an unexpected system error.",
        "A worker was started",
        _WORKER_LOG,
        "dmesg -T on {node} shows whether the kernel killed it because memory ran out",
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
    fault(
        "ray-start",
        r"Failed to register worker|Unable to register worker with raylet|not registered within the timeout|"
        r"Could not find any running Ray instance|Version mismatch: The cluster was started with|"
        r"Failed to (?:connect to GCS|get the system config from raylet)|RuntimeEnvSetupError: (?P<text>.*)|"
        r"The current node timed out during startup",
        "Ray did not start on a node, or its workers crashed at startup {text}",
        "core_worker.cc:496: Failed to register worker to Raylet: IOError: [RayletClient] Unable to register worker",
        "core_worker.cc:496: registered",
        "give Ray the CPUs of the allocation (ray start --num-cpus=$SLURM_CPUS_ON_NODE), a short, empty "
        "--temp-dir, and a high enough process limit (ulimit -u)",
        "the cause is in session_latest/logs (raylet.err, python-core-worker-*, runtime_env_agent.log)",
        tokens=(ERROR, b"not registered within"),
    ),
    report(
        "ray-node-died",
        r"NodeDiedError|^The node .{0,300}(?:has been marked dead|missed too many heartbeats)",
        "Ray lost a node: its raylet was killed, or stopped answering",
        "The node with node id: ab12 and address: 10.0.0.2 and node name: n2 has been marked dead because the detector "
        "has missed too many heartbeats from it.",
        "The node with node id: ab12 was added",
        "sinfo -R and dmesg -T on {node}: the machine, its memory, or its network",
        tokens=(ERROR, b"been marked dead"),
    ),
    effect(
        "ray-again",
        r"^ValueError: Failed to create placement group .{1,200} already exists",
        "Ray restarted the job's main task after it had died; its first death is what matters",
        "ValueError: Failed to create placement group 'global_poolverl_group_4:0' because name already exists.",
        "ValueError: Failed to create placement group",
        _WORKER_LOG,
    ),
    effect(
        "ray-wrapper",
        r"ray\.exceptions\.|ray::|ActorDiedError|RayTaskError",
        "Ray reports the failure of a worker",
        "ray.exceptions.RayTaskError(ValueError): ray::TaskRunner.run()",
        "ValueError: bad ray",
        _WORKER_LOG,
        role="echo",
    ),
)
