"""What Slurm, Pyxis, container runtimes and Kubernetes say when a job or its container does not start or is ended."""

from __future__ import annotations

from megatron_hcp.triage.signatures.row import ERROR, Signature, fault, report

_IMAGE = "start the image by hand on {node}, with the same user and mounts"

CONTAINERS: tuple[Signature, ...] = (
    fault(
        "container-reason",
        r"^pyxis:\s{2,12}(?P<why>(?!\[INFO\])\S.*)$|^pyxis: (?P<why2>\[ERROR\] .*)$",
        "the container did not start: {why}{why2}",
        _IMAGE,
        tokens=(ERROR,),
    ),
    fault(
        "container-failed",
        r"^pyxis: (?P<why>failed to \S.*|couldn't \S.*|container start failed.*|couldn't start container.*)|"
        r"^(?P<why2>Plugin initialization failed|spank: required plugin \S+ .*failed.*)|"
        r"^(?P<why3>could not open image .*|container creation failed.*|while (?:loading|making|extracting) .{1,200}: "
        r".*|Unable to (?:build|handle|pull) \S.*)|(?P<why4>Error response from daemon: .*)",
        "the container did not start: {why}{why2}{why3}{why4}",
        "the lines below it, and slurmd's log on the node, say why: no image of this name (a file's begins with / or "
        "./), no login, no space, or a missing mount",
        _IMAGE,
        tokens=(ERROR, b"FATAL: "),
        role="general",
        again="chance",
    ),
    fault(
        "submit-refused",
        r"^(?P<why>(?:Batch job submission|Job submit/allocate|allocation) failed: .*|"
        r"Unable to allocate resources: .*)",
        "Slurm rejected the job: {why}",
        "try again with --test-only; sinfo lists the partitions, and sacctmgr show assoc lists the accounts",
    ),
    fault(
        "pod-evicted",
        r"\bEvicted\b.{0,200}|The node was low on resource: (?P<what>[\w-]{1,40})|Usage of EmptyDir volume .{0,200}",
        "Kubernetes evicted the pod: its node ran low on a resource {what}",
        "kubectl describe pod; request as much as the pod uses (memory, ephemeral-storage)",
        tokens=(b"Evicted",),
        again="chance",
    ),
    fault(
        "pod-image",
        r"ImagePullBackOff|ErrImagePull",
        "Kubernetes could not pull the image",
        "is the name right, and is there an imagePullSecret?",
        tokens=(b"ImagePull",),
    ),
    report(
        "pod-crashed",
        r"CrashLoopBackOff|BackoffLimitExceeded|has reached the specified backoff limit|"
        r"(?:RunContainer|CreateContainer(?:Config)?)Error\b",
        "Kubernetes gave up on the pod after its container had failed",
        "kubectl logs --previous and kubectl describe pod show why",
        tokens=(b"BackOff", b"ackoff", b"Container"),
    ),
    fault(
        "pod-unschedulable",
        r"FailedScheduling|\d nodes are available: |FailedMount|FailedAttachVolume",
        "Kubernetes could not schedule the pod, or could not mount one of its volumes",
        "kubectl describe pod",
        tokens=(b"Failed",),
        again="chance",
    ),
)
