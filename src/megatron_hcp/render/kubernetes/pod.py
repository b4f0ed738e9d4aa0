"""The pod in which a job trains: the check as its init container, the supervisor as its command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from megatron_hcp.job.own import ENTRY
from megatron_hcp.launch.fact import Argument
from megatron_hcp.render.job import Job
from megatron_hcp.render.kubernetes.manifest import OwnPod
from megatron_hcp.render.kubernetes.volumes import Volumes
from megatron_hcp.render.kubernetes.words import amount, image_name, literal, pod_word, without_empty

TRAINER = "node"
"""The container that trains; Kubeflow Trainer's torch plugin looks for this name."""
CHECK = "check"
_UNDECIDED = """"$@" || [ "$?" -eq 4 ]"""
"""The exit code of `hcp check` on a launch that it leaves undecided: that one may train."""


def python_of(job: Job) -> str:
    """The Python that runs hcp and the training."""
    venv = job.site["venv"]
    return f"{venv}/bin/python" if venv and "python" not in job.origins else str(job.site["python"])


def known_words(job: Job, name: str, job_id: str) -> dict[str, str]:
    """What stands in a pod for the variables that Slurm or a login sets."""
    nodes = str(job.site["nodes"])
    known = {"SLURM_JOB_ID": job_id, "SLURM_JOBID": job_id, "SLURM_JOB_NAME": name}
    known |= {"SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes}
    if folder := job.site["workdir"] or job.site["container_workdir"]:
        known["PWD"] = literal(folder)
    return known | {key: literal(value) for key, value in (job.site["env"] or {}).items() if value is not None}


def launch_in_pod(job: Job, known: dict[str, str]) -> list[str]:
    """The launch's words, as a container's command takes them."""
    words: Sequence[Argument] = [word for line in job.launch_lines for word in line]
    return [pod_word(word, known) for word in words]


def check_container(job: Job, launch: Sequence[str], volumes: Volumes) -> dict[str, Any]:
    """The init container that checks the launch before an image's worth of GPUs is started."""
    words = ["check", *map(literal, (*job.spec.assumed, *job.check_arguments))]
    if job.has_connections:
        value = next((v.value for v in job.environment if v.name == "CUDA_DEVICE_MAX_CONNECTIONS"), None)
        words.append(f"--assume=env.CUDA_DEVICE_MAX_CONNECTIONS={value or 'null'}")
    command = ["/bin/sh", "-c", _UNDECIDED, "hcp", python_of(job), "-c", ENTRY]
    return without_empty(
        {
            "name": CHECK,
            "image": image_name(job.site["container_image"]),
            "command": command,
            "args": [*words, "--", *launch[job.check_skip :]],
            "workingDir": job.site["workdir"] or job.site["container_workdir"],
            "volumeMounts": volumes.mounts,
        }
    )


def environment_in_pod(job: Job, own: OwnPod) -> list[dict[str, Any]]:
    """The job's variables, and the launch's own whose value is in another object. A pod has none to unset."""
    kept = [v for v in job.environment if v.value is not None and not v.name.startswith("SRUN_")]
    stated = [{"name": v.name, "value": literal(v.value or "")} for v in kept]
    return [*stated, *(entry for entry in own.env if entry["name"] not in {item["name"] for item in stated})]


def resources_of(job: Job, own: OwnPod) -> dict[str, Any]:
    """GPUs as a limit, CPUs and memory as requests; what the launch's own container asks for besides is kept."""
    site, resources = job.site, own.container.get("resources")
    stated: dict[str, Any] = dict(resources) if isinstance(resources, dict) else {}
    limits, requests = dict(stated.get("limits") or {}), dict(stated.get("requests") or {})
    limits["nvidia.com/gpu"] = site["gpus_per_node"]
    if site["cpus_per_task"] is not None:
        requests["cpu"] = site["cpus_per_task"]
    if site["mem"] is not None and (memory := amount(site["mem"])):
        requests["memory"] = memory
    return without_empty({**stated, "limits": limits, "requests": requests})
