"""A job as the text of its target: YAML for Kubernetes, a script around ray.sub."""

from __future__ import annotations

from megatron_hcp.launch.fact import Launch
from megatron_hcp.render.job import Job
from megatron_hcp.render.targets.table import Target


def written_on(target: Target, job: Job, launch: Launch) -> str:
    """The text of the job on a target that is not Slurm.

    Raises:
        HcpError: a word of it cannot be known there.
    """
    if target.name == "ray-sub":
        from megatron_hcp.render.targets.ray_sub import ray_sub_script

        return ray_sub_script(job)
    from megatron_hcp.render.kubernetes.jobset import job_set, train_job
    from megatron_hcp.render.kubernetes.manifest import own_pod
    from megatron_hcp.render.kubernetes.rayjob import ray_job
    from megatron_hcp.render.kubernetes.text import manifest_text

    objects = {"jobset": job_set, "trainjob": train_job, "rayjob": ray_job}[target.name]
    return manifest_text(target, job.title, objects(job, own_pod(launch)))
