"""What the path of a log says: the rank, the node and the attempt that wrote it."""

from __future__ import annotations

import re
from typing import NamedTuple

from megatron_hcp.triage.number import whole

_FILE_RANK = re.compile(r"(?:^|[^a-z])(?:global_)?rank[-_]?(\d+)", re.I)
_FILE_NODE = re.compile(r"-r(?P<attempt>\d+)-node(?P<index>\d+)\.(?:log|out|err)$")
_FILE_ATTEMPT = re.compile(r"-r(\d+)-")
_NODE_FILE = re.compile(r"[A-Za-z0-9][\w.-]{0,252}\.(?:log|out|err)")
_RECORD = re.compile(
    r"(?:verdict(?:-r\d+(?:\.preempted)?)?|check|triage|job)\.json|(?:stall-r\d+|nodes|facts|ranks)\.txt"
)
_TORCHRUN_LOG = re.compile(r"attempt_(\d+)/(\d+)/std(?:out|err)\.log$")


class Name(NamedTuple):
    """What a log file's name says."""

    rank: int | None
    local: int | None
    node: str | None
    attempt: int | None
    node_index: int | None = None
    """The node's place in the job's list of nodes."""


def is_record(path: str) -> bool:
    """Whether a rendered job writes a file of this name about itself: it quotes failures, and none happens in it."""
    return _RECORD.fullmatch(path.rpartition("/")[2]) is not None


def read_name(path: str) -> Name:
    """Rank, node and attempt from a log's path, as far as it tells.

    >>> read_name("logs/train-12-r1-n2.log")
    Name(rank=None, local=None, node='n2', attempt=1, node_index=None)
    """
    torchrun = _TORCHRUN_LOG.search(path)
    if torchrun:
        return Name(None, whole(torchrun[2]), None, whole(torchrun[1]))
    name = path.rpartition("/")[2]
    numbered = _FILE_NODE.search(name)
    if numbered:
        return Name(None, None, None, whole(numbered["attempt"]), whole(numbered["index"]))
    ours, rank = _FILE_ATTEMPT.search(name), _FILE_RANK.search(name)
    node = name[ours.end() :] if ours else ""
    if ours is None or not _NODE_FILE.fullmatch(node):
        return Name(whole(rank[1]) if rank else None, None, None, None)
    return Name(whole(rank[1]) if rank else None, None, node.rpartition(".")[0], whole(ours[1]))
