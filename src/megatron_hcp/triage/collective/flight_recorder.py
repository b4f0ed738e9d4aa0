"""Who waited for whom: the dumps of torch's flight recorder, one of each rank (`nccl_trace_rank_3`, also as JSON).

Each dump holds the process groups of its rank and the last collectives that it queued. In a group that is stuck some
ranks wait in a collective that others have not queued. Such an absent rank may itself wait in another group; the one
that waits nowhere, or has no dump, is where the job stopped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from megatron_hcp.ground.intake import TooLargeError, read_whole
from megatron_hcp.triage.collective.collectives import Waited
from megatron_hcp.triage.collective.mismatch import Calls, Mismatch
from megatron_hcp.triage.collective.plain_pickle import NotPlain, read_plain_pickle
from megatron_hcp.triage.number import whole

_LARGEST = 64 << 20
_MOST_RANKS = 20_000
_MOST_FRAMES = 1_000
_LONGEST, _LONGEST_NAME, _LONGEST_RANK = 2_000_000, 1_000, 20
_MOST_WORK = 100_000_000
_ENTRY, _FRAME, _VALUE = 2_000, 40, 8
"""What an entry, a frame and a value of another list take, in characters."""
_FILE = re.compile(r"(?:^|[_-])(?:rank[_-]?)?(\d{1,6})(?:\.(?:json|pkl|pickle|pt))?$")
_PICKLE = b"\x80"
_SOURCE = "flight-recorder"


class _Queued(NamedTuple):
    """A collective that a rank queued; `where` is the line of the program that asked for it."""

    sequence: int
    op: str
    done: bool
    where: str


@dataclass
class _StuckGroup:
    """A process group, as the dumps of its ranks show it."""

    name: str = ""
    ranks: frozenset[int] = frozenset()
    last: dict[int, _Queued] = field(default_factory=dict)
    """rank -> the last collective that it queued"""
    pending: dict[int, list[_Queued]] = field(default_factory=dict)
    """rank -> the collectives that it queued and that are not marked as ended"""

    @property
    def waiting(self) -> dict[int, _Queued]:
        """rank -> the first collective that it queued, that did not end, and that some rank has not queued.

        One that all have queued may have ended: the mark comes a little later.
        """
        members = self.ranks or frozenset(self.last)
        reached = min((self.last[rank].sequence if rank in self.last else -1 for rank in members), default=-1)
        beyond = {rank: [one for one in queued if one.sequence > reached] for rank, queued in self.pending.items()}
        return {rank: min(queued, key=lambda one: one.sequence) for rank, queued in beyond.items() if queued}


def is_dump(path: Path, start: bytes) -> bool:
    """Whether a file, by its name and its first bytes, is a dump of one rank."""
    named = _FILE.search(path.name) is not None and ("trace" in path.name or "rank" in path.name)
    return named and (start[:1] == _PICKLE or (start[:1] == b"{" and b'"' in start[:4]))


def read_dumps(paths: Iterable[Path]) -> tuple[Waited | None, list[tuple[Path, str]]]:
    """The collective that the job stopped in, by the dumps of its ranks, and the files that are none, with why."""
    groups: dict[str, _StuckGroup] = {}
    calls = Calls()
    ranks: set[int] = set()
    unread: list[tuple[Path, str]] = []
    for path in paths:
        found = _FILE.search(path.name)
        rank = whole(found[1]) if found else None
        try:
            dump = _read(path)
        except (NotPlain, OSError) as error:
            unread.append((path, f"no dump of a flight recorder: {error}"))
            continue
        if rank is None or len(ranks) >= _MOST_RANKS:
            unread.append((path, "a dump of no rank, or of one too many"))
            continue
        if _work(dump) > _MOST_WORK:
            unread.append((path, "no dump of a flight recorder: it uses its values too often"))
            continue
        ranks.add(rank)
        _add(groups, calls, rank, dump)
    return _of_mismatch(calls.first()) or _origin(groups, ranks), unread


def _of_mismatch(found: Mismatch | None) -> Waited | None:
    if found is None:
        return None
    at = f"rank {found.ranks[0]} called it in {found.where}" if found.ranks and found.where else ""
    said = found.text()
    op = found.expected.split(" of ")[0]
    return Waited(
        op, found.sequence, found.group or None, None, found.others, found.ranks, _SOURCE, at, found.kind, said
    )


def _read(path: Path) -> Mapping[str, Any]:
    try:
        data = read_whole(str(path), _LARGEST)
    except TooLargeError:
        raise NotPlain(f"larger than {_LARGEST >> 20} MiB") from None
    try:
        dump = read_plain_pickle(data) if data[:1] == _PICKLE else json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotPlain(str(error)[:200] or "no value") from None
    if not isinstance(dump, dict) or not isinstance(dump.get("entries"), list):
        raise NotPlain("it has no list of entries")
    return dump


def _work(dump: Mapping[str, Any]) -> int:
    """What reading a dump takes, in characters, each counted as often as it is used: a few bytes can use a list a
    million times. The groups of 16,000 ranks, spelled out a hundred times, are a tenth of the limit."""
    config, work = dump.get("pg_config"), 0
    for value in (*dump["entries"], *(config.values() if isinstance(config, dict) else ())):
        ranks, frames = (value.get(key) for key in ("ranks", "frames")) if isinstance(value, dict) else (None, None)
        work += _ENTRY + _FRAME * (len(frames) if isinstance(frames, list) else 0)
        work += len(ranks) * (1 if isinstance(ranks, str) else _VALUE) if isinstance(ranks, (list, str)) else 0
        if work > _MOST_WORK:
            break
    return work


def _add(groups: dict[str, _StuckGroup], calls: Calls, rank: int, dump: Mapping[str, Any]) -> None:
    config = dump.get("pg_config")
    for key, stated in config.items() if isinstance(config, dict) else ():
        if isinstance(stated, dict):
            group = groups.setdefault(_name(stated.get("name")) or _name(key), _StuckGroup())
            group.name = group.name or _name(stated.get("desc"))
            group.ranks |= {
                number
                for found in re.findall(r"\d{1,6}", _numbers(stated.get("ranks")))
                if (number := whole(found)) is not None
            }
    seen: dict[int, str] = {}
    """Of a list of frames, by identity: in a pickle many entries can share one."""
    for entry in dump["entries"]:
        if isinstance(entry, dict) and not entry.get("is_p2p"):
            frames = entry.get("frames")
            if id(frames) not in seen:
                seen[id(frames)] = _where(frames)
            _add_entry(groups, calls, rank, entry, seen[id(frames)])


def _add_entry(groups: dict[str, _StuckGroup], calls: Calls, rank: int, entry: dict[str, Any], where: str) -> None:
    process_group, sequence = entry.get("process_group"), entry.get("collective_seq_id")
    if not isinstance(sequence, int) or not isinstance(process_group, (list, tuple)) or len(process_group) != 2:
        return
    key = _name(process_group[0])
    group = groups.setdefault(key, _StuckGroup())
    group.name = group.name or _name(process_group[1])
    done = entry.get("state") == "completed" or entry.get("retired") is True
    op = _name(entry.get("profiling_name"))[:80].rpartition(":")[2]
    queued = _Queued(sequence, op, done, where)
    calls.add(key, group.name, rank, entry, op, where)
    if rank not in group.last or group.last[rank].sequence < sequence:
        group.last[rank] = queued
    if not done:
        group.pending.setdefault(rank, []).append(queued)


def _where(frames: Any) -> str:
    """The first frame outside torch, as `function (file:line)`."""
    for frame in frames[:_MOST_FRAMES] if isinstance(frames, list) else ():
        if isinstance(frame, dict):
            file = _name(frame.get("filename"))
            if "torch/distributed" not in file:
                return f"{_name(frame.get('name'))} ({file}:{_name(frame.get('line'))})"[:300]
    return ""


def _name(value: Any) -> str:
    """A text or number of a dump, cut."""
    return (
        str(value[:_LONGEST_NAME] if isinstance(value, str) else value) if isinstance(value, (str, int, float)) else ""
    )


def _numbers(value: Any) -> str:
    """The ranks of a group: a text, or a list, of which what is nested is left out, and each item is cut: a list can
    hold one long text many times."""
    if isinstance(value, list):
        return " ".join(_name(item)[:_LONGEST_RANK] for item in value)
    return value[:_LONGEST] if isinstance(value, str) else ""


def _absent(group: _StuckGroup) -> tuple[_Queued, set[int]] | None:
    """The first collective that some ranks of a group wait in, and the ranks that have not queued it."""
    waiting = group.waiting
    if not waiting:
        return None
    waited = min(waiting.values(), key=lambda entry: entry.sequence)
    members = group.ranks or frozenset(group.last)
    absent = {rank for rank in members if rank not in group.last or group.last[rank].sequence < waited.sequence}
    return (waited, absent) if absent else None


def _origin(groups: dict[str, _StuckGroup], ranks: set[int]) -> Waited | None:
    """Follows the absent ranks from group to group, to those that wait nowhere."""
    stuck = {key: found for key, group in sorted(groups.items()) if (found := _absent(group)) is not None}
    if not stuck:
        return None
    waits = {rank for key in stuck for rank in groups[key].waiting}
    # A group whose absent ranks wait in no other stuck group is at the origin; if there is none, they wait in a circle.
    first = {key: found for key, found in stuck.items() if found[1] - waits} or stuck
    key, (waited, absent) = min(first.items(), key=lambda item: (len(item[1][1]), item[0]))
    missing = sorted(absent - waits or absent)
    seen = [group.last[missing[0]] for group in groups.values() if missing[0] in group.last]
    known = [rank for rank in missing if rank in ranks]
    at = "" if known else f"rank {missing[0]} left no dump: whether it called the collective isn't known"
    missing = known or missing
    if seen:
        last = seen[-1]
        at = f"rank {missing[0]} last queued {last.op} {last.sequence}" + (f" in {last.where}" if last.where else "")
    return Waited(
        waited.op,
        waited.sequence,
        groups[key].name or None,
        None,
        tuple(sorted(groups[key].waiting)),
        tuple(known),
        _SOURCE,
        at,
    )
