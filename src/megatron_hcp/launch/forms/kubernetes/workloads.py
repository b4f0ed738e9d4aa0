"""The containers that train, by kind of workload, with the number of pods and what each has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from megatron_hcp.launch.forms.kubernetes.texts import child, items_of, number, word
from megatron_hcp.launch.forms.yaml.nodes import Map, Node

_COMMAND = {"command", "args"}
_GPUS = ("nvidia.com/gpu", "amd.com/gpu")


class TrainingPod(NamedTuple):
    """One container with a command, or a Ray job's entry point."""

    kind: str
    name: str
    container: Map
    pod: Map | None
    """The pod's spec, for its volumes."""
    nodes: int | None
    nodes_at: Node | None = None
    """Where the number of pods is written."""
    entrypoint: Node | None = None
    """A Ray job's command, as one text for a shell."""
    ranks_per_node: Node | None = None
    gpus: Node | None = None


def workloads(documents: list[Map]) -> list[TrainingPod]:
    """The workloads of all documents of a file, lists of objects included."""
    found: list[TrainingPod] = []
    for document in documents:
        kind = word(child(document, "kind"))
        if kind == "List":
            found += workloads([item for item in items_of(child(document, "items")) if isinstance(item, Map)])
        elif kind in _KINDS:
            name = word(child(document, "metadata", "name")) or word(child(document, "metadata", "generateName"))
            found += (one._replace(kind=kind, name=name) for one in _KINDS[kind](document))
    return found


def _pod(
    spec: Node | None, nodes: int | None, at: Node | None = None, ranks: Node | None = None
) -> Iterator[TrainingPod]:
    """The containers of a pod's spec that have a command, in the order in which they start."""
    for container in [*items_of(child(spec, "initContainers")), *items_of(child(spec, "containers"))]:
        if isinstance(container, Map) and isinstance(spec, Map) and _COMMAND & set(container.items):
            yield TrainingPod("", "", container, spec, nodes, at, None, ranks, _gpus(child(container, "resources")))


def _gpus(resources: Node | None) -> Node | None:
    places = (child(resources, where, name) for where in ("limits", "requests") for name in _GPUS)
    return next((node for node in places if node is not None), None)


def _single(document: Map) -> Iterator[TrainingPod]:
    yield from _pod(child(document, "spec"), 1)


def _job(document: Map) -> Iterator[TrainingPod]:
    """A plain Job, or one of Volcano's with its tasks."""
    spec = child(document, "spec")
    tasks = items_of(child(spec, "tasks"))
    for task in tasks:
        at = child(task, "replicas")
        yield from _pod(child(task, "template", "spec"), number(at, 1), at)
    if not tasks:
        at = child(spec, "parallelism")
        yield from _pod(child(spec, "template", "spec"), number(at, 1), at)


def _cron_job(document: Map) -> Iterator[TrainingPod]:
    template = child(document, "spec", "jobTemplate")
    if isinstance(template, Map):
        yield from _job(template)


def _job_set(document: Map) -> Iterator[TrainingPod]:
    for job in items_of(child(document, "spec", "replicatedJobs")):
        at = child(job, "template", "spec", "parallelism")
        sizes = number(child(job, "replicas"), 1), number(at, 1)
        nodes = None if None in sizes else (sizes[0] or 0) * (sizes[1] or 0)
        yield from _pod(child(job, "template", "spec", "template", "spec"), nodes, at or child(job, "replicas"))


def _pytorch_job(document: Map) -> Iterator[TrainingPod]:
    """Kubeflow's PyTorchJob: the master and the workers are the nodes."""
    spec = child(document, "spec")
    roles = child(spec, "pytorchReplicaSpecs")
    replicas = list(roles.items.values()) if isinstance(roles, Map) else []
    counts = [number(child(role, "replicas"), 1) for role in replicas]
    nodes = None if None in counts else sum(count or 0 for count in counts)
    at = next((child(role, "replicas") for role in reversed(replicas) if child(role, "replicas")), None)
    for role in replicas:
        yield from _pod(child(role, "template", "spec"), nodes, at, child(spec, "nprocPerNode"))


def _mpi_job(document: Map) -> Iterator[TrainingPod]:
    """Kubeflow's MPIJob: the launcher starts the ranks, the workers are the nodes."""
    spec = child(document, "spec")
    roles = child(spec, "mpiReplicaSpecs")
    at = child(roles, "Worker", "replicas")
    worker = items_of(child(roles, "Worker", "template", "spec", "containers"))
    gpus = _gpus(child(worker[0], "resources")) if worker else None
    for one in _pod(child(roles, "Launcher", "template", "spec"), number(at, 1), at, child(spec, "slotsPerWorker")):
        yield one._replace(gpus=gpus)


def _train_job(document: Map) -> Iterator[TrainingPod]:
    """Kubeflow Trainer's TrainJob; what it omits is in a runtime that isn't in the file."""
    trainer = child(document, "spec", "trainer")
    if isinstance(trainer, Map) and _COMMAND & set(trainer.items):
        at = child(trainer, "numNodes")
        gpus = _gpus(child(trainer, "resourcesPerNode"))
        ranks = child(trainer, "numProcPerNode")
        yield TrainingPod("", "", trainer, None, number(at, None), at, None, ranks, gpus)


def _ray_job(document: Map) -> Iterator[TrainingPod]:
    """A Ray job: its entry point runs in a shell on the head; the pods with GPUs are the nodes."""
    spec = child(document, "spec")
    entrypoint = child(spec, "entrypoint")
    if not isinstance(spec, Map) or entrypoint is None:
        return
    nodes: int | None = 0
    gpus = at = None
    groups = items_of(child(spec, "rayClusterSpec", "workerGroupSpecs"))
    for group in [child(spec, "rayClusterSpec", "headGroupSpec"), *groups]:
        containers = items_of(child(group, "template", "spec", "containers"))
        has = next((found for each in containers if (found := _gpus(child(each, "resources"))) is not None), None)
        if has is None or number(has, 0) == 0:
            continue
        count = number(child(group, "replicas"), 1)
        nodes = None if nodes is None or count is None else nodes + count
        gpus, at = has, child(group, "replicas") or at
    yield TrainingPod("", "", spec, None, nodes or None, at, entrypoint, None, gpus)


_KINDS: dict[str, Callable[[Map], Iterator[TrainingPod]]] = {
    "Pod": _single,
    "Job": _job,
    "CronJob": _cron_job,
    "JobSet": _job_set,
    "PyTorchJob": _pytorch_job,
    "MPIJob": _mpi_job,
    "TrainJob": _train_job,
    "RayJob": _ray_job,
}
