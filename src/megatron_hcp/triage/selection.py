"""Which event of a job came first: of what it did not survive, by srun's step, time, and kind.

A job's files are one history. What stands above the first line that a rank wrote is the shell's preamble, which was
survived once any rank writes (`FileEvents.leave_preamble`). What an srun step wrote stands in a part of its own
(`FileEvents.step`): of several that failed the first counts, since later ones miss what it should have left, and the
others are told too. Within a step time decides before the kind of a line does, and the number of ranks decides last.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from megatron_hcp.triage.events import HANGS, NAMES_THE_END, ROLES, STEPS_THAT_SURVIVE, Event, FileEvents
from megatron_hcp.triage.exit_codes import KILLED
from megatron_hcp.triage.line import NOBODY, When, seconds_of, without_figures
from megatron_hcp.triage.logged_job import LoggedJob
from megatron_hcp.triage.raised.survived import RAISED
from megatron_hcp.triage.ranks.ended_first import HAPPENED, Said, awaited, ended_before, odd_one, silent_one
from megatron_hcp.triage.ranks.last_words import told_why, words_of
from megatron_hcp.triage.ranks.left_early import is_of_client, left_early
from megatron_hcp.triage.ranks.place import place_of
from megatron_hcp.triage.ranks.quiet import quiet_one
from megatron_hcp.triage.ranks.uneven import uneven
from megatron_hcp.triage.signatures.environment import CONDA
from megatron_hcp.triage.signatures.exceptions import CLIENT
from megatron_hcp.triage.signatures.row import Role

_WAITED = ("collective-timeout", "gloo-timeout", "ft-heartbeat")
"""Signatures of ranks that waited for minutes: what stands below them, they may have caused; above them, not."""
_OF_AN_END: frozenset[Role] = frozenset(("end", "report", "echo"))
"""Roles of what is said while a job is ended from outside."""
_AGAIN_AND_AGAIN = 10
_BESIDE = 3
_AT_ONCE = 100
"""Lines between events that belong together: a chain of exceptions, a launcher's word and what its program said."""
_SURVIVED_S = 120
"""Steps of a part that follows a failure, and seconds by which another file's last step does, that show that the job
went on: ranks that wait for one that ended report none."""


def candidates_of(parts: Sequence[FileEvents], files: Sequence[FileEvents]) -> list[Said]:
    """The events of some parts that the job did not survive, as far as all its files show."""
    said, of_each = [], dict[Path, list[FileEvents]]()
    over, last = dict[int | None, set[Role]](), dict[int | None, list[FileEvents]]()  # an array's tasks are jobs apart
    for entry in files:
        of_each.setdefault(entry.path, []).append(entry)
        over.setdefault(entry.name.task, set()).update(entry.over_elsewhere)
        if entry.over or (entry.steps >= STEPS_THAT_SURVIVE and entry.last_step):
            last.setdefault(entry.name.task, []).append(entry)
    # What a worker of Ray wrote stands in its driver's log too, which may have trained on after it.
    of_drivers = {line for entry in files if entry.kind != "worker" for line in entry.doubtful.survived}
    for entry in parts:
        others_over = set() if entry.steps else over.get(entry.name.task, set())
        gone = of_drivers if entry.kind == "worker" else set()
        others = last.get(entry.name.task, [])
        for role, event in entry.pending.items():
            if role in others_over or (entry.kind == "ray" and role in ("effect", "report")):
                continue
            alike = sorted((event, *(later for later in entry.further if later.role == role)), key=_is_dispensable)
            alike = [one for one in alike if without_figures(one.line) not in gone]
            alike.sort(key=lambda one: _is_above_start((entry, one)))
            said += [(entry, one) for one in alike if not _went_on(entry, one, of_each[entry.path], others)][:1]
    return said


def _went_on(entry: FileEvents, event: Event, same: Sequence[FileEvents], trained: Sequence[FileEvents]) -> bool:
    """Whether the job trained on after an event.

    Args:
        entry: the part of a log that has the event.
        event: what happened.
        same: all parts of this log; a later one may train.
        trained: of all logs, the parts whose last step has a time; in another log it may be a later one.
    """
    if sum(other.steps for other in same if other.part > entry.part) >= STEPS_THAT_SURVIVE:
        return True
    is_requeued = event.role == "end" and any(other.part > entry.part for other in same)
    if is_requeued and any(other.over for other in trained):
        return True
    if event.line.when is None:
        return False
    since = seconds_of(event.line.when) + _SURVIVED_S
    return any(
        other.last_step is not None and seconds_of(other.last_step) > since and other.path != entry.path
        for other in trained
    )


def first_event(
    parts: Sequence[FileEvents], files: Sequence[FileEvents], job: LoggedJob
) -> tuple[Said, list[Said]] | None:
    """The event that came first in some parts of a job's files, and all that may have been; None where nothing failed.

    What follows the end of the job (its time limit, its preemption) is no failure. A line that says error and that no
    signature knows is one only where others show that something ended. Between files without times the order of the
    files decides.
    """
    candidates = candidates_of(parts, files)
    candidates = [item for item in candidates if not _is_known_to_ranks(item, parts)]
    stalls = [item for item in candidates if item[1].role == "stall"]
    candidates = [item for item in candidates if item[1].role != "stall"]
    ends = [event for _, event in candidates if event.role == "end"]
    candidates = [item for item in candidates if not any(_follows(item[1], end) for end in ends)]
    known = [event for _, event in candidates if event.role != "unknown"]
    if _had_its_programs(parts) and not all(map(_is_of_a_shell, known)):
        candidates = [item for item in candidates if not _is_of_a_shell(item[1])]
        known = [event for event in known if not _is_of_a_shell(event)]
    others = [event for event in known if not (_is_of_a_shell(event) or _is_of_any_program(event))]
    if any(event.role in HAPPENED for event in others) and not _codes_of(parts) & _NOT_STARTED:
        candidates = [item for item in candidates if not _is_of_any_program(item[1])]
        known = [event for event in known if not _is_of_any_program(event)]
    below = [item for item in candidates if not _is_above_start(item)]
    if any(event.role in HAPPENED for _, event in below):
        candidates, known = below, [event for _, event in below if event.role != "unknown"]
    if not known:
        refused = [
            (entry, event._replace(signature=CLIENT)) for entry, event in candidates if is_of_client(entry, event)
        ]
        return (refused[0], refused) if refused else None
    if not any(entry.steps for entry in parts) and {event.role for event in known} <= _OF_AN_END:
        for item in stalls:
            if item[0].counts[item[1].signature.id] >= _AGAIN_AND_AGAIN:
                return item, candidates
    # A line that nothing explains may be the cause of what follows it, not of what stands above it.
    candidates = [
        item for item in candidates if item[1].role != "unknown" or not any(_follows(item[1], event) for event in known)
    ]
    hung = [event for event in known if event.signature.id in HANGS]
    candidates = [item for item in candidates if not any(_announces(item[1], event) for event in hung)]
    first = _earliest([item for item in candidates if not _is_of_waiting(item, candidates)])
    if first[1].role in _SAID_BY_OTHERS:
        first = odd_one(parts, job, place_of(*first, job)[0]) or first
    first = _killed_for(first, candidates) or awaited(first, parts) or ended_before(first, candidates) or first
    if first[1].role == "effect":
        first = silent_one(parts, place_of(*first, job)[0]) or first
    if first[1].role == "effect":  # Ray saw the end that others only felt
        first = next((item for item in candidates if item[1].signature.id == "ray-worker-died"), first)
    if first[1].role in ("origin", "effect"):
        first = uneven(parts, first) or left_early(parts) or quiet_one(parts, first) or told_why(parts) or first
    first = _interrupted(first, candidates) or first
    if first[1].role in ("report", "echo"):
        first = words_of(parts, first[1]) or first
    return first, candidates


def _announces(event: Event, hung: Event) -> bool:
    """Whether a line that nothing explains stands just above the word of the same process that it hung."""
    is_above = event.file == hung.file and 0 < hung.number - event.number <= _BESIDE
    return event.role == "unknown" and is_above and event.line.writer == hung.line.writer


def _earliest(candidates: Sequence[Said]) -> Said:
    """The earliest of those that say most: within a log by place, between logs by time.

    A launcher's word that a task died of a signal comes late, and no log of the task can say so: exceptions of
    others do not count beside it.
    """
    has_death = any(event.role == "death" for _, event in candidates)
    said = [item for item in candidates if not (has_death and item[1].role == "general")]
    of_each: dict[int, list[Said]] = {}
    for item in sorted(said, key=lambda item: (_tier(item[1]), item[1].offset)):
        of_each.setdefault(item[1].file, []).append(item)
    firsts = [_of_one_moment(items) for items in of_each.values()]
    first = min(firsts, key=_order)
    if first[1].signature.id in _WAITED:  # for minutes: what another log says, at no time that it states, came before
        untimed = [item for item in firsts if item[1].role in HAPPENED and item[1].when is None]
        first = min((item for item in untimed if item[1].file != first[1].file), key=_order, default=first)
    return first


def _of_one_moment(items: Sequence[Said]) -> Said:
    """Of the first event of a log and those that stand so near that they were said at once, the one that says most."""
    first = items[0][1]
    near = [item for item in items if _tier(item[1]) == _tier(first) and item[1].number - first.number <= _AT_ONCE]
    return min(near, key=lambda item: (ROLES.index(item[1].role), item[1].offset))


def _tier(event: Event) -> tuple[int, bool]:
    """What a line says: what happened, or that somebody ended the job, waited, or saw the end of another."""
    role: Role = "cause" if event.role in HAPPENED or event.signature.id in _WAITED else event.role
    return ROLES.index(role), event.role == "echo" and event.signature.id not in NAMES_THE_END


def _order(item: Said) -> tuple[tuple[int, bool], bool, When, int, int]:
    entry, event = item
    return (
        _tier(event),
        event.when is None,
        event.when or (0, 0, 0.0),
        event.file,
        -len(entry.spread.of(event.signature.id, event.line)),
    )


def _is_known_to_ranks(item: Said, parts: Sequence[FileEvents]) -> bool:
    """Whether another rank trained on after the same exception in its own log, and no launcher saw a process end."""
    entry, event = item
    if event.role not in RAISED or not _is_of_rank(entry) or any(other.ends for other in parts):
        return False
    said = without_figures(event.line)
    return any(said in other.doubtful.survived for other in parts if other is not entry and _is_of_rank(other))


def _is_of_rank(entry: FileEvents) -> bool:
    return entry.name.rank is not None or entry.name.local is not None


def _killed_for(first: Said, candidates: Sequence[Said]) -> Said | None:
    """The kernel's word that memory ran out, where a launcher only saw a process that was killed."""
    event = first[1]
    if event.role != "death" or event.code != KILLED:
        return None
    said = next((item for item in candidates if item[1].signature.id == _MEMORY), None)
    return None if said is None else (said[0], said[1]._replace(ended=event.ended))


def _interrupted(first: Said, candidates: Sequence[Said]) -> Said | None:
    """The interrupt (Ctrl-C) of a log, where the only words on lost peers stand below one in their own logs."""
    if first[1].role not in ("origin", "effect"):
        return None
    said = [item for item in candidates if item[1].signature.id == "interrupted"]
    above = {event.file: event.offset for _, event in said}
    lost = [event for _, event in candidates if event.role in ("origin", "effect")]
    is_below = all(above.get(event.file, event.offset) < event.offset for event in lost)
    return min(said, key=_order) if said and lost and is_below else None


_MEMORY = "host-memory"
_UNEXPLAINED = ("rollout-engine",)
"""Signatures of what ranks say of another program that failed, whose launcher says less."""


def _is_of_waiting(item: Said, candidates: Sequence[Said]) -> bool:
    """Whether an exception stands below torchrun's report on ranks that had said what they miss: a launcher that waited
    for torchrun raised it."""
    entry, event = item
    if event.role != "general" or event.line.writer != NOBODY:
        return False
    ends = [other.offset for other in entry.ends if other.ended.says == "torchrun" and other.offset < event.offset]
    return any(
        other.signature.id in _UNEXPLAINED and other.file == event.file and other.offset < max(ends, default=0)
        for _, other in candidates
    )


_NOT_STARTED = frozenset((126, 127))
_OF_ANY_PROGRAM = ("program4", "program5")
"""Groups of a program that a command or a container was to start: the training's, or one that a script goes without."""
_OF_A_SHELL = ("program", "program4")
"""Groups of a program without which a script may go on, whatever else is known: a container's runtime does not."""


def _is_of_a_shell(event: Event) -> bool:
    """Whether a shell, or a command that starts another, said that it did not find a program."""
    return event.signature.id == "program-unknown" and any(event.groups[name] for name in _OF_A_SHELL)


def _is_above_start(item: Said) -> bool:
    """Whether it stands above the first words of the job's program, and nobody who has a rank said it."""
    entry, event = item
    return entry.started_at is not None and event.offset < entry.started_at and event.is_of_a_shell


def _is_of_any_program(event: Event) -> bool:
    return event.signature.id == "program-unknown" and any(event.groups[name] for name in _OF_ANY_PROGRAM)


def _is_dispensable(event: Event) -> bool:
    """Whether a script may go on without what it did not find, so that what it said later ended the job."""
    return event.signature.id == CONDA or _is_of_any_program(event)


def _had_its_programs(files: Sequence[FileEvents]) -> bool:
    """Whether the script went on without a program that its shell did not find: a job that trained had all it needs,
    and so had one whose tasks ended in another way than by that."""
    codes = _codes_of(files)
    return any(entry.steps for entry in files) or (bool(codes) and not codes & _NOT_STARTED)


def _codes_of(files: Sequence[FileEvents]) -> set[int | None]:
    """The exit codes that launchers reported."""
    return {event.code for entry in files for event in entry.ends}


_SAID_BY_OTHERS: tuple[Role, ...] = ("origin", "effect", "report", "echo")


def _follows(event: Event, end: Event) -> bool:
    if event is end or event.role == "end":
        return False
    if event.file == end.file:
        return event.offset > end.offset
    return event.when is not None and end.when is not None and event.when > end.when
