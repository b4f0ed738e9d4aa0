"""What stands before the message on a log line: labels of srun, torchrun, torch, NCCL and Ray, and times."""

from __future__ import annotations

import re
from typing import NamedTuple

from hcp.triage.number import number, whole

_LONGEST = 4000
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_DATE = r"\d{4}-(?P<month>\d\d)-(?P<day>\d\d)[ T_](?P<time>\d\d:\d\d:\d\d(?:[.,]\d+)?)\S*"
_TIME = re.compile(_DATE)
_GLOG = r"[EWIF](?P<month>\d{1,2})(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d(?:\.\d+)?)"
_GLOG_TIME = re.compile(_GLOG)
_PREFIXES = tuple(
    re.compile(text)
    for text in (
        r"\s{0,20}(?P<label>\d{1,6}): ?",
        r"\[rank(?P<rank>\d+)\]:\s?",
        r"\[[A-Za-z_]+(?P<local>\d+)\]:\s?",
        rf"\[{_GLOG} [^\]]{{0,300}}\]\s?",
        rf"{_GLOG} \d+ [^\]\s]+\]\s?",
        r"\[Rank (?P<rank>\d+)\]\s?",
        r"\((?P<actor>[A-Za-z_]\w*) pid=(?P<pid>\d+)(?:, ip=(?P<node>[\d.a-fA-F:]+))?\)\s?",
        r"(?P<node>[A-Za-z0-9][\w.-]{0,252}):\d{1,10}:\d{1,10} \[(?P<local>\d{1,6})\] (?=NCCL )",
        rf"\[{_DATE}\]?\s*",
        rf"{_DATE}\s*(?:[-|:]\s*)?",
        r"(?:ERROR|CRITICAL|WARNING|INFO|DEBUG)\s*[:|-]\s*(?:[\w.]+:)?\s*",
    )
)
_FILE_RANK = re.compile(r"(?:^|[^a-z])(?:global_)?rank[-_]?(\d+)", re.I)
_FILE_NODE = re.compile(r"-r(?P<attempt>\d+)-node(?P<index>\d+)\.(?:log|out|err)$")
_FILE_ATTEMPT = re.compile(r"-r(\d+)-")
_NODE_FILE = re.compile(r"[A-Za-z0-9][\w.-]{0,252}\.(?:log|out|err)")
_TORCHRUN_LOG = re.compile(r"attempt_(\d+)/(\d+)/std(?:out|err)\.log$")

When = tuple[int, int, float]
"""(month, day, seconds of the day): what all formats state."""


class Line(NamedTuple):
    """A log line taken apart. `label` is srun's task number, `local` a rank on its node, `rank` a global rank."""

    body: str
    label: int | None
    local: int | None
    rank: int | None
    node: str | None
    when: When | None


def read_line(raw: bytes) -> Line:
    """The line without its prefixes, and what these say.

    >>> read_line(b"12: [rank12]: ValueError: no")
    Line(body='ValueError: no', label=12, local=None, rank=12, node=None, when=None)
    """
    text = _ANSI.sub("", _end_of(raw).decode("utf-8", "replace"))
    text = text.rstrip("\r\n").rpartition("\r")[2]
    said: dict[str, str] = {}
    for _ in range(6):
        match = next((found for pattern in _PREFIXES if (found := pattern.match(text))), None)
        if match is None or not match[0]:
            break
        said |= {name: value for name, value in match.groupdict().items() if value is not None and name not in said}
        text = text[match.end() :]
    found = _TIME.search(text) if "time" not in said else None
    if found:
        said |= found.groupdict()
    return Line(
        text.strip() if not text.startswith((" ", "\t")) else text.rstrip(),
        whole(said.get("label")),
        whole(said.get("local")),
        whole(said.get("rank")),
        said.get("node"),
        _when(said),
    )


def _end_of(raw: bytes) -> bytes:
    """The end of a long line, from a word's start: half a word could be a secret without the name that says so."""
    if len(raw) <= _LONGEST:
        return raw
    cut = raw[-_LONGEST:]
    return cut.partition(b" ")[2] or cut


def last_time(text: str) -> When | None:
    """The last time that a text states: for a traceback, which carries none itself."""
    last = None
    for pattern in (_TIME, _GLOG_TIME):
        for match in pattern.finditer(text):
            if last is None or match.start() > last.start():
                last = match
    return _when(last.groupdict()) if last else None


class Name(NamedTuple):
    """What a log file's name says."""

    rank: int | None
    local: int | None
    node: str | None
    attempt: int | None
    node_index: int | None = None
    """The node's place in the job's list of nodes."""


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


def _when(said: dict[str, str]) -> When | None:
    if "time" not in said:
        return None
    hours, minutes, seconds = said["time"].replace(",", ".").split(":")
    parts = whole(said["month"]), whole(said["day"]), whole(hours), whole(minutes), number(seconds[:12])
    month, day, hour, minute, second = parts
    if month is None or day is None or hour is None or minute is None or second is None:
        return None  # digits of another script
    return month, day, hour * 3600 + minute * 60 + second
