"""A job as a RayJob (ray.io/v1): KubeRay makes the cluster, and the launch runs on its head."""

from __future__ import annotations

from typing import Any

from megatron_hcp.render.job import Job
from megatron_hcp.render.kubernetes.manifest import OwnPod
from megatron_hcp.render.kubernetes.pod import (
    check_container,
    environment_in_pod,
    known_words,
    launch_in_pod,
    python_of,
    resources_of,
)
from megatron_hcp.render.kubernetes.volumes import Volumes, volumes_of
from megatron_hcp.render.kubernetes.words import image_name, object_name, without_empty
from megatron_hcp.render.site import limit_s
from megatron_hcp.render.targets.ray_command import ray_command


def ray_job(job: Job, own: OwnPod) -> list[dict[str, Any]]:
    """The RayJob. The check is an init container of the head; a launch with errors never gets a cluster.

    HTTPMode hands the command to one shell; `ray job submit`, which the other modes call, would quote it again.

    Raises:
        HcpError: a word cannot be known in a pod.
    """
    name, site = object_name(job.site["job_name"]), job.site
    volumes = volumes_of(site, own)
    spec = {
        "entrypoint": ray_command(job, python_of(job)),
        "submissionMode": "HTTPMode",
        "shutdownAfterJobFinishes": True,
        "backoffLimit": site["requeue"] or 0,
        "activeDeadlineSeconds": limit_s(site),
        "rayClusterSpec": {
            "headGroupSpec": {
                "rayStartParams": {},
                "template": {"spec": _pod(job, own, volumes, "ray-head", _check(job, volumes, name))},
            },
            "workerGroupSpecs": _workers(job, own, volumes),
        },
    }
    head = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": name}}
    return [{**head, "spec": without_empty(spec)}]


def _check(job: Job, volumes: Volumes, name: str) -> list[dict[str, Any]]:
    return [check_container(job, launch_in_pod(job, known_words(job, name, name)), volumes)]


def _workers(job: Job, own: OwnPod, volumes: Volumes) -> list[dict[str, Any]]:
    count = job.site["nodes"] - 1
    if not count:
        return []
    sizes = {"groupName": "workers", "replicas": count, "minReplicas": count, "maxReplicas": count}
    return [{**sizes, "rayStartParams": {}, "template": {"spec": _pod(job, own, volumes, "ray-worker", [])}}]


def _pod(job: Job, own: OwnPod, volumes: Volumes, name: str, first: list[dict[str, Any]]) -> dict[str, Any]:
    container = {
        "name": name,
        "image": image_name(job.site["container_image"]),
        **{key: value for key, value in own.container.items() if key not in ("volumeMounts", "resources")},
        "env": environment_in_pod(job, own),
        "resources": resources_of(job, own),
        "volumeMounts": volumes.mounts,
    }
    containers = {"initContainers": first, "containers": [without_empty(container)], "volumes": volumes.volumes}
    return {**own.pod, **without_empty(containers)}
