"""Which task of its job this process is, from the environment that Slurm (or Kubernetes) gives it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import NamedTuple


class JobTask(NamedTuple):
    """One of `tasks` processes that supervise a job: one per rank, or one per node if a launcher starts the ranks.

    `number`: its number in the job; 0 leads. `local`: its number on its node. `siblings`: the numbers of all tasks on
    its node. `attempt`: how often the job was started again. `in_pod`: Kubernetes runs it, one task per pod.
    """

    number: int
    local: int
    node_index: int
    node: str
    tasks: int
    siblings: tuple[int, ...]
    job: str
    attempt: int
    in_pod: bool = False

    @property
    def leads(self) -> bool:
        return self.number == 0

    @property
    def speaks_for_its_node(self) -> bool:
        return self.local == 0


def task_of(environment: Mapping[str, str], tasks_per_node: int, nodes: int, attempt: int | None = None) -> JobTask:
    """The task that an environment describes; without Slurm, one per node, numbered by the launcher's variable."""
    slurm = "SLURM_PROCID" in environment
    index = int(environment.get("SLURM_PROCID") or _first(environment, "PET_NODE_RANK", "JOB_COMPLETION_INDEX") or 0)
    node_index = int(environment.get("SLURM_NODEID") or index) if slurm else index
    siblings = tuple(int(number) for number in environment.get("SLURM_GTIDS", "").split(",") if number.isdecimal())
    return JobTask(
        number=index,
        local=int(environment.get("SLURM_LOCALID") or 0),
        node_index=node_index,
        node=node_name(environment),
        tasks=int(environment.get("SLURM_NTASKS") or tasks_per_node * nodes),
        siblings=siblings or (index,),
        job=_first(environment, "SLURM_JOB_ID", "HCP_JOB_ID") or "0",
        attempt=int(environment.get("SLURM_RESTART_COUNT") or 0) if attempt is None else attempt,
        in_pod=not slurm and "JOB_COMPLETION_INDEX" in environment,
    )


def node_name(environment: Mapping[str, str] = os.environ) -> str:
    """The node's name in Slurm or Kubernetes; the host name is not enough if several nodes share a machine."""
    return _first(environment, "SLURMD_NODENAME", "HCP_NODE_NAME") or socket.gethostname()


def _first(environment: Mapping[str, str], *names: str) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")
