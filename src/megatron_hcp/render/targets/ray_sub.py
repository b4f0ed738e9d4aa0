"""A job as a script that submits NeMo-RL's ray.sub, which brings up Ray in a container and runs a command there."""

from __future__ import annotations

from megatron_hcp.job.own import ENTRY
from megatron_hcp.launch.fact import Argument
from megatron_hcp.render.job import Job
from megatron_hcp.render.kubernetes.pod import python_of
from megatron_hcp.render.shell_words import quoted
from megatron_hcp.render.targets.ray_command import in_shell, ray_command, with_folder

_SBATCH = (
    "job-name account partition qos reservation constraint nodelist exclude nodes mem segment switches time".split()
)


def ray_sub_script(job: Job) -> str:
    """The script; it is run with bash in the folder that holds ray.sub."""
    site, python = job.site, python_of(job)
    words = [with_folder(word, job.launch_home) for line in job.launch_lines for word in line][job.check_skip :]
    exports = [
        *(_unset_or_export(v.name, v.value) for v in job.environment),
        f"export GPUS_PER_NODE={site['gpus_per_node']} BASE_LOG_DIR={quoted(site['logs'])}",
        f"export CONTAINER={quoted(site['container_image'])} MOUNTS={quoted(','.join(_mounts(job)))}",
        "# On every node, before Ray starts: a launch with errors is not started; 4 means undecided.",
        f"export SETUP_COMMAND={quoted(_check(job, python, words))}",
        "# The launch, word for word, as ray.sub runs it on the head.",
        f"export COMMAND={quoted(ray_command(job, python))}",
    ]
    return "\n".join(
        [
            "#!/bin/bash",
            f"# {job.title}",
            "# Written by `hcp render --target ray-sub`; run it with bash where NeMo-RL's ray.sub is.",
            "set -euo pipefail",
            *exports,
            " ".join(["exec sbatch", *map(quoted, _options(job)), "ray.sub"]),
            "",
        ]
    )


def _unset_or_export(name: str, value: str | None) -> str:
    return f"unset {name}" if value is None else f"export {name}={quoted(value)}"


def _mounts(job: Job) -> list[str]:
    stated = [mount for text in job.site["mounts"] or () for mount in text.split(",") if mount]
    return [mount if ":" in mount else f"{mount}:{mount}" for mount in stated]


def _check(job: Job, python: str, launch: list[Argument]) -> str:
    words = [python, "-c", ENTRY, "check", *job.spec.assumed, *job.check_arguments, "--", *launch]
    return in_shell(words) + ' || [ "$?" -eq 4 ] || exit 1'


def _options(job: Job) -> list[str]:
    """sbatch's options; ray.sub's own lines have the others."""
    site = job.site
    found = [(name, site[name.replace("-", "_")]) for name in _SBATCH]
    options = [f"--{name}={value}" for name, value in found if value is not None]
    if site["slurm_requeue"] is not None:
        options.append("--requeue" if site["slurm_requeue"] else "--no-requeue")
    options += [f"--output={site['log_file']}"] if site["log_file"] else []
    return [*options, *(site["sbatch"] or ())]
