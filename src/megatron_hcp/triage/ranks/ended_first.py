"""Which rank's process ended first, where the line that counts so far only says that another rank was lost."""

from __future__ import annotations

from collections.abc import Sequence

from megatron_hcp.triage.events import SENT_FROM_OUTSIDE, Event, FileEvents
from megatron_hcp.triage.exit_codes import ABORTED, ProcessEnd
from megatron_hcp.triage.line import When
from megatron_hcp.triage.logged_job import LoggedJob
from megatron_hcp.triage.ranks.place import are_tasks_ranks, place_of
from megatron_hcp.triage.signatures.row import Role

Said = tuple[FileEvents, Event]
"""An event, and the log that has it."""

HAPPENED: frozenset[Role] = frozenset(("cause", "death", "general"))
"""Roles of lines that say what happened: among them the earliest counts, whatever row knows it."""
_NOT_CONNECTED = ("gloo-connect", "gloo-loopback", "gloo-interface")
"""Signatures of ranks that did not reach another one: it may have ended."""


def ended_before(first: Said, candidates: Sequence[Said]) -> Said | None:
    """What ended a process of another log before `first`, which only says that a rank was lost or not reached."""
    since = first[1].when
    if since is None or not (first[1].role in ("origin", "effect") or first[1].signature.id in _NOT_CONNECTED):
        return None
    timed = [
        (when, item)
        for item in candidates
        if item[1].file != first[1].file and _is_an_end(item[1]) and (when := _latest_time(item)) is not None
    ]
    when, item = min(timed, key=lambda one: one[0], default=(since, first))
    return item if when < since else None


def odd_one(files: Sequence[FileEvents], job: LoggedJob, victim: int | None) -> Said | None:
    """Of the rank that ended otherwise than all others: by an exit code of its own, where signals ended these; or by
    its own abort, or with the only traceback that is not about a lost peer, where `victim` is another rank, that says
    that it lost one. None where there is no such rank, or more than one."""
    cut = {place_of(entry, event, job)[0]: (entry, event) for entry in files for event in entry.cut.values()}
    lost = {rank for entry in files for rank in entry.lost}
    said = [(entry, event) for entry in files for event in entry.ends]
    is_rank = are_tasks_ranks(files, job)
    own: dict[int, Said] = {}
    for entry, event in said:
        if event.ended.is_own and event.ended.rank is not None:
            own.setdefault(event.ended.rank, (entry, event))
        elif event.ended.is_own and is_rank and event.ended.tasks:
            first = event.ended.tasks[0].start
            own.setdefault(first, (entry, event))
            if sum(map(len, event.ended.tasks)) > 1:
                own[first + 1] = entry, event  # there is more than one
    if len(own) == 1 and any(event.ended.is_signalled for _, event in said):
        (rank, (entry, event)), *_ = own.items()
        groups = {**event.groups, "at": "; signals ended the others"}
        return None if rank in lost else cut.get(rank) or (entry, event._replace(groups=groups))
    is_of_rank = victim is not None and not own
    aborted = {item[1].ended.rank: item for item in said if item[1].code in ABORTED and item[1].ended.rank is not None}
    if is_of_rank and len(aborted) == 1 and not aborted.keys() & {*lost, victim}:
        return next(iter(aborted.values()))
    alone = [item for rank, item in cut.items() if rank is not None and rank not in lost and item[1].groups["at"]]
    return alone[0] if len(alone) == 1 and victim is not None and not {None, victim} & cut.keys() else None


def awaited(first: Said, parts: Sequence[FileEvents]) -> Said | None:
    """A Gloo collective that timed out, at the only rank that did not wait in it: it was busy, and lost the others.

    None where `first` is no such timeout, only one rank reports it, or more than one does not.
    """
    if first[1].signature.id != _TIMED_OUT:
        return None
    waited, known = set[int | None](), set[int]()
    for entry in parts:
        known |= entry.lost if entry.name.rank is None else {*entry.lost, entry.name.rank}
        own = (key for key in entry.seen if key[0] == _TIMED_OUT)
        waited |= {next((who for who in (*key[1:3], entry.name.rank) if who is not None), None) for key in own}
    busy = known - waited
    if len(busy) != 1 or len(waited - {None}) < _FEWEST_WAITING:
        return None
    entry, event = first
    groups = {**event.groups, "at": f"; rank {min(busy)} alone did not wait in it"}
    return entry, event._replace(groups=groups, ended=ProcessEnd(None, min(busy)))


_TIMED_OUT, _FEWEST_WAITING = "gloo-timeout", 2


def silent_one(files: Sequence[FileEvents], victim: int | None) -> Said | None:
    """The only rank that torchrun saw end by an exit code of its own and that doesn't say that it lost another one,
    as `victim` does; None where it didn't end first, or there are more."""
    lost = {rank for entry in files for rank in entry.lost}
    said = [(entry, event) for entry in files for event in entry.ends if event.ended.is_own]
    timed = [(when, item) for item in said if (when := item[1].ended.when) is not None]
    silent = [(when, item) for when, item in timed if item[1].ended.rank not in lost]
    if victim not in lost or len({item[1].ended.rank for _, item in silent}) != 1:
        return None
    when, item = silent[0]
    return item if when == min(when for when, _ in timed) else None


def _is_an_end(event: Event) -> bool:
    is_raised = event.role in HAPPENED and event.signature.id not in _NOT_CONNECTED
    return is_raised or event.signature.id in SENT_FROM_OUTSIDE


def _latest_time(item: Said) -> When | None:
    """The time by which an event had happened: its own, or that of torchrun's word below it that a worker ended."""
    entry, event = item
    below = (end.line.when for end in entry.ends if end.offset > event.offset and end.line.when is not None)
    return event.line.when or event.around or min(below, default=None)
