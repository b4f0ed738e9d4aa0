"""What the path of a log says: the rank, the node and the attempt that wrote it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from megatron_hcp.triage.number import whole

PACKED = re.compile(r"\.(?:gz|bz2|xz|zst)$")
_FILE_RANK = re.compile(r"(?:^|[^a-z])(?:global_)?rank[-_]?(\d+)", re.I)
_FILE_NODE = re.compile(r"-r(?P<attempt>\d+)-node(?P<index>\d+)\.(?:log|out|err)$")
_FILE_ATTEMPT = re.compile(r"-r(\d+)-")
_NODE_FILE = re.compile(r"[A-Za-z0-9][\w.-]{0,252}\.(?:log|out|err)")
_RECORD = re.compile(
    r"(?:verdict(?:-r\d+(?:\.preempted)?)?|check|triage|job)\.json|(?:stall-r\d+|nodes|facts|ranks)\.txt"
)
_NOTE = re.compile(r"(?:^|/)\.attempt-\d{1,9}/")
"""What the tasks of a job tell each other."""
_POD_LOG = re.compile(r"(?:^|/)[^/_]+_(?P<pod>[a-z0-9][a-z0-9.-]{0,252})_[0-9a-f-]{32,36}/[^/]+/\d+\.log$")
"""Of the kubelet: `NAMESPACE_POD_UID/CONTAINER/RESTART.log`."""
_RESTART_LOG = re.compile(r"(?P<of>(?:^|.*/)[^/_]+_[^/_]+_[0-9a-f-]{32,36}/[^/]+)/(?P<number>\d{1,6})\.log")
PREVIOUS = re.compile(r"(?P<of>.+)[._-]previous(?P<end>\.\w{1,8})")
"""What `kubectl logs --previous` is usually kept as, beside the log of the container that runs."""
_TASK_LOG = re.compile(r"(?<![0-9])[0-9]{1,18}_(?P<task>[0-9]{1,9})\.(?:out|err)$")
"""Of sbatch: `slurm-JOB_TASK.out`."""
_WORKER_LOG = re.compile(r"(?:^|/)worker-[0-9a-f]{40,64}-[0-9a-f]{8}-\d{1,10}\.(?:out|err)$")
"""Of Ray's session folder: what a worker wrote, which Ray prints in the driver's log too."""
_RAYS_LOG = re.compile(
    r"(?:^|/)(?:python-core-(?:worker|driver)-[0-9a-f]{40,64}_\d{1,10}|gcs_server|raylet|(?:log_)?monitor|dashboard\w{0,20}|"
    r"runtime_env_\w{1,20}|debug_state\w{0,20}|events/event_[A-Z_]{2,30})\.(?:log|out|err|txt)$"
)
"""What Ray writes about itself there."""
_TORCHRUN_LOG = re.compile(r"attempt_(\d+)/(\d+)/std(?:out|err)\.log$")
_PADDLES_LOG = re.compile(r"(?:^|/)workerlog\.(\d{1,6})$")
"""Of paddle.distributed.launch: the local rank."""


class Name(NamedTuple):
    """What a log file's name says."""

    rank: int | None
    local: int | None
    node: str | None
    attempt: int | None
    node_index: int | None = None
    """The node's place in the job's list of nodes."""
    task: int | None = None
    """Of a job array: which of its tasks wrote the log."""


LogKind = Literal["", "record", "ray", "worker"]
"""record: `is_record`. ray: Ray writes about itself there, and errors that no row knows say nothing of the job.
worker: Ray keeps there what one of its workers wrote."""


def kind_of_log(path: str) -> LogKind:
    """Whose log it is, as far as that matters."""
    if is_record(path):
        return "record"
    return "ray" if _RAYS_LOG.search(path) else "worker" if _WORKER_LOG.search(path) else ""


def is_record(path: str) -> bool:
    """Whether a rendered job writes this file about itself: it may quote failures, and none happens in it."""
    return _RECORD.fullmatch(path.rpartition("/")[2]) is not None or _NOTE.search(path) is not None


def read_name(path: str) -> Name:
    """Rank, node and attempt from a log's path, as far as it tells.

    >>> read_name("logs/train-12-r1-n2.log")
    Name(rank=None, local=None, node='n2', attempt=1, node_index=None, task=None)
    """
    path = PACKED.sub("", path)
    if pod := _POD_LOG.search(path):
        return Name(None, None, pod["pod"], None)
    torchrun = _TORCHRUN_LOG.search(path)
    if torchrun:
        return Name(None, whole(torchrun[2]), None, whole(torchrun[1]))
    if paddles := _PADDLES_LOG.search(path):
        return Name(None, whole(paddles[1]), None, None)
    name = path.rpartition("/")[2]
    numbered = _FILE_NODE.search(name)
    if numbered:
        return Name(None, None, None, whole(numbered["attempt"]), whole(numbered["index"]))
    ours, rank = _FILE_ATTEMPT.search(name), _FILE_RANK.search(name)
    node = name[ours.end() :] if ours else ""
    if ours is None or not _NODE_FILE.fullmatch(node):
        task = None if rank else _TASK_LOG.search(name)
        return Name(whole(rank[1]) if rank else None, None, None, None, task=whole(task["task"]) if task else None)
    stem = node.rpartition(".")[0]  # of `launch-r0-srun.log`, what every task's srun says
    return Name(whole(rank[1]) if rank else None, None, None if stem == "srun" else stem, whole(ours[1]))


def restarts_of(paths: Iterable[str]) -> dict[str, int]:
    """Which of a pod's containers wrote each log, counted from 0, where the logs of several are there.

    >>> restarts_of(["pod.previous.log", "pod.log", "other.log"])
    {'pod.previous.log': 0, 'pod.log': 1}
    """
    restarts: dict[str, dict[str, int]] = {}
    names = {PACKED.sub("", path): path for path in paths}
    for name, path in names.items():
        if found := _RESTART_LOG.fullmatch(name):
            restarts.setdefault(found["of"], {})[path] = whole(found["number"]) or 0
        elif (found := PREVIOUS.fullmatch(name)) and (last := names.get(found["of"] + found["end"])):
            restarts[name] = {path: 0, last: 1}
    return {path: number for one in restarts.values() if len(one) > 1 for path, number in one.items()}
