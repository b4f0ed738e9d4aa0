"""A rank that ended well before the others, which then lost it: no launcher reports it, and its own log says so."""

from __future__ import annotations

import re
from collections.abc import Sequence

from megatron_hcp.triage.course.kinds import kind_of
from megatron_hcp.triage.events import Event, FileEvents
from megatron_hcp.triage.exit_codes import ProcessEnd
from megatron_hcp.triage.line import last_time, read_line
from megatron_hcp.triage.ranks.ended_first import Said
from megatron_hcp.triage.scan import Hit
from megatron_hcp.triage.signatures.exceptions import LEFT_EARLY

_SAYS_SO = re.compile(
    r"(?i)\b(?:finished|complete[ds]?|done|leaving|left|exit(?:s|ed|ing)?|ended|good ?bye|shut(?:ting)? down)\b"
)
_OF_PART = re.compile(
    r"(?i)\b(?:sav(?:ed|ing)|load(?:ed|ing|er)?|evaluation|validation|compil\w{1,6}|download\w{0,3}|warm ?up|capture|"
    r"init\w{0,12}|build\w{0,3}|workers?|NCCL)\b|\b(?:step|iter|iteration|epoch|batch|checkpoint)[ :=#]{1,3}\d"
)
"""What a training does meanwhile, and goes on: its process may have been lost there."""
_TAIL = 4096


def keep_last_line(entry: FileEvents, end: Hit, file: int) -> None:
    """Keeps the last line of a log; also as `left` where it says that the process was done."""
    lines = end.chunk[max(0, end.at - _TAIL) : end.at].rstrip().split(b"\n")
    line = read_line(lines[-1])
    if not line.body.strip():
        return
    rank, kind = entry.name.rank, kind_of(lines[-1])
    at = end.chunk.rfind(lines[-1], 0, end.at)
    number = end.number - end.chunk.count(b"\n", at, end.at)
    when = line.when or last_time(end.before())
    ended = ProcessEnd(None, rank, entry.name.local)
    groups = {"text": line.body.strip()}
    entry.last = Event(LEFT_EARLY, "cause", groups, line, file, end.offset - end.at + at, number, when, ended)
    if _SAYS_SO.search(line.body) and not _OF_PART.search(line.body) and not (kind and kind.is_step):
        entry.left = entry.last


def left_early(parts: Sequence[FileEvents]) -> Said | None:
    """The rank that ended well while all others, as their logs or their launcher say, failed or were ended.

    None where there is none, or more than one.
    """
    own = {entry.name.rank: entry for entry in parts if entry.name.rank is not None and (entry.last or entry.seen)}
    lost = {rank for entry in parts for rank in entry.lost}
    listed = {event.ended.rank for entry in parts for event in entry.ends} - {None}
    silent = own.keys() - lost - listed
    if len(silent) != 1 or len(listed) < 2:
        return None
    entry = own[silent.pop()]
    is_well = entry.left is not None and not entry.pending.keys() - {"unknown", "stall"}
    return (entry, entry.left) if entry.left is not None and is_well else None


_CLIENTS = ("srun", "sbatch", "salloc")


def is_of_client(entry: FileEvents, event: Event) -> bool:
    """Whether Slurm's client says it of itself and the log ends with words of the same, so that nothing was started."""
    last = entry.last.line.speaker if entry.last else ""
    return event.line.speaker in _CLIENTS and event.line.speaker == last and not (entry.steps or entry.runs)
