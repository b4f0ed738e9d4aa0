"""A job as a JobSet (jobset.x-k8s.io/v1alpha2), and as Kubeflow's TrainJob with the runtime that holds the same."""

from __future__ import annotations

from typing import Any

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.job.outcome import POD_RESTARTS
from megatron_hcp.job.own import ENTRY
from megatron_hcp.render.job import Job
from megatron_hcp.render.kubernetes.manifest import OwnPod
from megatron_hcp.render.kubernetes.pod import (
    CHECK,
    TRAINER,
    check_container,
    environment_in_pod,
    known_words,
    launch_in_pod,
    python_of,
    resources_of,
)
from megatron_hcp.render.kubernetes.volumes import volumes_of
from megatron_hcp.render.kubernetes.words import image_name, literal, object_name, pod_word, without_empty
from megatron_hcp.render.site import limit_s

_PORT = 29500
_SPEC_FOLDER = "/etc/hcp"
_JOB_ID = "$(HCP_JOB_ID)"
_ENDED_FROM_OUTSIDE = POD_RESTARTS[-2:]
_LABELS = "metadata.labels['jobset.sigs.k8s.io/{}']"
"""Labels of a JobSet's pods; its uid from JobSet 0.9 on. Source: kubernetes-sigs/jobset, labelAndAnnotateObject."""


def job_set(job: Job, own: OwnPod) -> list[dict[str, Any]]:
    """The config map of the job's spec, and the JobSet.

    Raises:
        HcpError: the logs are on no volume, or a word cannot be known in a pod.
    """
    name = object_name(job.site["job_name"])
    head = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name}}
    return [_config_map(job, name), {**head, "spec": _job_set_spec(job, own, name)}]


def train_job(job: Job, own: OwnPod) -> list[dict[str, Any]]:
    """The config map, a TrainingRuntime that holds the pods, and the TrainJob that uses it.

    A TrainJob's own command has at most 128 words, so the command is in the runtime.

    Raises:
        HcpError: as `job_set`.
    """
    name, site = object_name(job.site["job_name"]), job.site
    spec = _job_set_spec(job, own, name)
    spec["replicatedJobs"][0]["template"]["metadata"] = {
        "labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    }
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {"mlPolicy": {"numNodes": site["nodes"], "torch": {}}, "template": {"spec": spec}},
    }
    train = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {
            "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": name},
            "trainer": {
                "image": image_name(site["container_image"]),
                "numNodes": site["nodes"],
                "numProcPerNode": site["gpus_per_node"],
            },
        },
    }
    return [_config_map(job, name), runtime, train]


def _config_map(job: Job, name: str) -> dict[str, Any]:
    data = {"job.json": job.spec_text + "\n"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-hcp"}, "data": data}


def _job_set_spec(job: Job, own: OwnPod, name: str) -> dict[str, Any]:
    """Any failure of a pod ends the job; the set starts it again, unless the pod says that it would fail again."""
    template = {
        "parallelism": job.site["nodes"],
        "completions": job.site["nodes"],
        "completionMode": "Indexed",
        "backoffLimit": 0,
        **({"activeDeadlineSeconds": limit} if (limit := limit_s(job.site)) else {}),
        "podFailurePolicy": {
            "rules": [
                _final(CHECK, _ENDED_FROM_OUTSIDE),
                _final(TRAINER, POD_RESTARTS),
            ]
        },
        "template": {"spec": _pod(job, own, name)},
    }
    return {
        "failurePolicy": {
            "maxRestarts": job.site["requeue"] or 0,
            "restartStrategy": "BlockingRecreate",
            "rules": [{"name": "final", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}],
        },
        "replicatedJobs": [{"name": TRAINER, "replicas": 1, "template": {"spec": template}}],
    }


def _final(container: str, again: tuple[int, ...]) -> dict[str, Any]:
    """The rule that a container's exit code is final, unless it is one of these."""
    codes = {"containerName": container, "operator": "NotIn", "values": sorted(again)}
    return {"action": "FailJob", "onExitCodes": codes}


def _pod(job: Job, own: OwnPod, name: str) -> dict[str, Any]:
    volumes, known = volumes_of(job.site, own), known_words(job, name, _JOB_ID)
    logs = str(job.site["logs"])
    if not volumes.holds(logs):
        raise HcpError(
            f"logs: found {logs}, which is on no volume of the pods",
            wanted="a folder on a volume that all pods of the job share",
            do="state it with --logs, and its volume with --mounts",
        )
    launch = launch_in_pod(job, known)
    spec = {"name": "hcp-job", "configMap": {"name": f"{name}-hcp"}}
    trainer = {
        "name": TRAINER,
        "image": image_name(job.site["container_image"]),
        **{key: value for key, value in own.container.items() if key not in ("volumeMounts", "resources")},
        "command": [python_of(job), "-c", ENTRY],
        "args": _supervised(job, launch, name, known),
        "workingDir": job.site["workdir"] or job.site["container_workdir"],
        "env": [*_place(name), *environment_in_pod(job, own)],
        "resources": resources_of(job, own),
        "volumeMounts": [*volumes.mounts, {"name": "hcp-job", "mountPath": _SPEC_FOLDER}],
    }
    return {
        **own.pod,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": job.site["signal"],
        "initContainers": [check_container(job, launch, volumes)],
        "containers": [without_empty(trainer)],
        "volumes": [*volumes.volumes, spec],
    }


def _supervised(job: Job, launch: list[str], name: str, known: dict[str, str]) -> list[str]:
    start = _launcher(job, name)
    program = [literal(word) for word in job.program]
    checkpoints = [f"--checkpoints={pod_word(job.checkpoint_dir, known)}"] if job.checkpoint_dir is not None else []
    return [
        *("job", "run", f"{_SPEC_FOLDER}/job.json", f"--folder={job.site['logs'].rstrip('/')}/{name}-{_JOB_ID}"),
        *("--attempt=$(HCP_ATTEMPT)", *(checkpoints if job.writes_checkpoints else [])),
        *(f"--launcher-words={len(start)}", f"--program-words={len(program)}", "--"),
        *(*start, *program, *launch),
    ]


def _launcher(job: Job, name: str) -> list[str]:
    site, address = job.site, f"{name}-{TRAINER}-0-0.{name}"
    sizes = [f"--nnodes={site['nodes']}", f"--nproc-per-node={site['gpus_per_node']}"]
    if job.start.name == "ft_launcher":
        return [
            *("ft_launcher", *sizes, "--rdzv-backend=c10d", f"--rdzv-endpoint={address}:{_PORT}"),
            *(f"--rdzv-id={_JOB_ID}-$(HCP_ATTEMPT)", f"--max-restarts={site['ft_restarts']}"),
            f"--ft-rank_section_timeouts={site['ft_timeouts']}",
            f"--ft-rank_out_of_section_timeout={site['ft_outside']}",
        ]
    where = [f"--master-addr={address}", f"--master-port={_PORT}"]
    return [python_of(job), "-m", "torch.distributed.run", *sizes, *where, f"--max-restarts={site['max_restarts']}"]


def _place(name: str) -> list[dict[str, Any]]:
    """Where a pod is: variables that hcp reads, and the words above."""
    fields = {
        "HCP_JOB_ID": _LABELS.format("jobset-uid"),
        "HCP_ATTEMPT": _LABELS.format("restart-attempt"),
        "HCP_NODE_NAME": "spec.nodeName",
    }
    return [
        *({"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()),
        {"name": "MASTER_ADDR", "value": f"{name}-{TRAINER}-0-0.{name}"},
        {"name": "MASTER_PORT", "value": str(_PORT)},
    ]
