"""What each task of a job starts: the launcher or the rank, the test of the groups, Ray."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from megatron_hcp.job.own import own_command
from megatron_hcp.job.spec import JobSpec
from megatron_hcp.job.task import JobTask

LAUNCHERS = ("torchrun", "ft_launcher")


class JobWords(NamedTuple):
    """The words of a job's command line, in their parts: the launcher's, the program's, the launch's."""

    start: Sequence[str]
    program: Sequence[str]
    launch: Sequence[str]

    def training(self) -> list[str]:
        return [*self.start, *self.program, *self.launch]

    def communication_test(self, spec: JobSpec) -> list[str]:
        python = ["--no-python"] if spec.start in LAUNCHERS else []
        return [*self.start, *python, *own_command("job", "test-groups", "--", *(spec.communication or ()))]


def rank_environment(spec: JobSpec, task: JobTask) -> Mapping[str, str]:
    """The environment of what a task starts: its rank where Slurm starts the ranks, else the number of its node."""
    found = dict(os.environ)
    if spec.tasks_are_ranks:
        found |= {"RANK": str(task.number), "WORLD_SIZE": str(task.tasks), "LOCAL_RANK": str(task.local)}
    else:
        found["PET_NODE_RANK"] = str(task.node_index)
    return found


def ray_words(spec: JobSpec, task: JobTask, environment: Mapping[str, str]) -> list[str]:
    """Ray's head on the first node, a worker on every other one."""
    address, port = environment["MASTER_ADDR"], environment["MASTER_PORT"]
    where = (
        ["--head", f"--port={port}", f"--node-ip-address={address}"] if task.leads else [f"--address={address}:{port}"]
    )
    return ["ray", "start", *where, f"--num-gpus={spec.gpus_per_node}", "--block"]
