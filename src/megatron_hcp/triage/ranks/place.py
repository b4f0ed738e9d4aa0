"""On which rank and node a line was written, by the line, its file's name and the job's own lines."""

from __future__ import annotations

import re
from collections.abc import Iterable

from megatron_hcp.triage.events import Event, FileEvents
from megatron_hcp.triage.logged_job import LoggedJob
from megatron_hcp.triage.names import OF_EACH
from megatron_hcp.triage.number import whole


def place_of(entry: FileEvents, event: Event, job: LoggedJob) -> tuple[int | None, str | None, int | None]:
    """(rank, node, local rank) of an event, from its line, its file's name, and the job's own lines."""
    line, name = event.line, entry.name
    rank = line.rank if line.rank is not None else name.rank
    local = line.local if line.local is not None else name.local
    node = event.groups.get("host") or line.node or name.node
    if node is None and name.node_index is not None and name.node_index < len(job.nodes):
        node = job.nodes[name.node_index]
    if event.groups.get("local"):
        local = whole(event.groups["local"])
    tasks = event.groups.get("tasks")
    label = whole(re.split("[,-]", tasks)[0]) if tasks else line.label
    per_node = job.gpus_per_node
    if label is not None and job.start in ("torchrun", "ft_launcher", "ray"):
        node = job.nodes[label] if label < len(job.nodes) else node
        if rank is None and local is not None and per_node:
            rank = label * per_node + local
    elif rank is None and label is not None and local is None:
        rank = label
    if rank is None and local is not None and per_node and node in job.nodes:
        rank = job.nodes.index(node) * per_node + local
    if node is None and rank is not None:
        node = job.node_of_rank.get(rank)
        if node is None and per_node and job.nodes and rank // per_node < len(job.nodes):
            node = job.nodes[rank // per_node]
    return rank, None if node in OF_EACH else node, local


_STATED = re.compile(
    r"(?im)^[^\w\n]{0,8}(?:running on )?(?:node|host(?:name)?|node ?list|slurm_(?:job_)?nodelist|slurmd_nodename)"
    r"\s{0,4}[:=]\s{0,4}([a-z][a-z0-9.-]{0,62}\d[a-z0-9.-]{0,40})(?=\s|[|,;]|$)"
)


def stated_nodes(start: bytes) -> set[str]:
    """The nodes that a log's first lines name: `Node: n7 | Job: 12`; a list of several (`n[1-4]`) names none."""
    return set(_STATED.findall(start.decode("utf-8", "replace")))


def are_tasks_ranks(files: Iterable[FileEvents], job: LoggedJob) -> bool:
    """Whether srun started the ranks themselves, and not a launcher of them on each node."""
    if job.start is not None:
        return job.start == "srun"
    return not any(event.ended.says == "torchrun" for entry in files for event in entry.ends)
