"""Collects the lines of a log that a signature knows, and forgets those that did not end the job."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, get_args

from megatron_hcp.triage.course.doubtful import DoubtfulLines
from megatron_hcp.triage.course.not_finite import NotFinite
from megatron_hcp.triage.exit_codes import ABORTED, KILLED, ProcessEnd, exit_code, read_end, role_of_report
from megatron_hcp.triage.inputs.log_name import LogKind, Name
from megatron_hcp.triage.line import NOBODY, Line, When, Writer, last_time, weight, without_figures
from megatron_hcp.triage.raised.frames import Frame, at_text, frames_above, text_after
from megatron_hcp.triage.raised.survived import RAISED, goes_on, is_of_thread, was_logged
from megatron_hcp.triage.raised.tracebacks import time_around
from megatron_hcp.triage.ranks.spread import RankSpread
from megatron_hcp.triage.scan import Hit
from megatron_hcp.triage.signatures.exceptions import CUT, UNKNOWN
from megatron_hcp.triage.signatures.launchers import ABORTED_AT_EXIT
from megatron_hcp.triage.signatures.row import Role, Signature

_KEPT = 200
STEPS_THAT_SURVIVE = 3
"""A failure after which the same log reports so many training steps did not end the job."""
ROLES: tuple[Role, ...] = get_args(Role)
"""The first in this order explains most: of the lines of all logs, one of the first role is the first failure."""


class Event(NamedTuple):
    """One line that a signature knows; `role` is the signature's, or another where the exit code says so."""

    signature: Signature
    role: Role
    groups: dict[str, str]
    line: Line
    file: int
    offset: int
    number: int
    """Of the line in its file, from 1."""
    when: When | None
    """The time that the line states, else the last one stated above it: it orders logs, and is no line's own."""
    ended: ProcessEnd = ProcessEnd()
    around: When | None = None  # the time of a line that states none, where lines of the same rank fix it
    frames: tuple[Frame, ...] = ()  # of the traceback of an exception, the innermost first
    more: str = ""  # what an exception's text goes on with, in the lines below

    @property
    def is_of_a_shell(self) -> bool:
        """Whether nobody who has a rank wrote it, and it is neither Slurm's word on the job nor a warning."""
        return self.line.writer == NOBODY and self.role not in _LAST_WORDS and self.signature.id != _NODE_FAILED

    @property
    def code(self) -> int | None:
        """The exit code that a launcher reported, negative for a signal."""
        return exit_code(self.groups) if self.ended.code is None else self.ended.code


@dataclass
class FileEvents:
    """The events of one attempt in one log: the first pending one of each role, and how many were survived."""

    path: Path
    name: Name
    attempt: int | None
    """None: neither the log nor its name says."""
    kind: LogKind = ""
    pending: dict[Role, Event] = field(default_factory=dict)
    seen: set[tuple[str, int | None, int | None, int | None]] = field(default_factory=set)
    reported: bool = False
    survived: int = 0
    steps: int = 0
    runs: bool = False  # whether the log shows in another way than by steps that the program ran
    course: tuple[tuple[int, int], ...] = ()  # what its last step's line counts, each with of how many
    since: int = 0
    not_finite: NotFinite = field(default_factory=NotFinite)
    counts: Counter[str] = field(default_factory=Counter)
    tracebacks: int = 0
    outlived: Counter[str] = field(default_factory=Counter)  # by line, how often training went on after it
    doubtful: DoubtfulLines = field(default_factory=DoubtfulLines)
    ends: list[Event] = field(default_factory=list)
    """What launchers say about processes that ended."""
    last_words: list[Event] = field(default_factory=list)  # of a process that ended by itself, or of a rank's own log
    last: Event | None = None  # the last line of the log
    left: Event | None = None  # that line, where it says that its process was done
    cut: dict[Writer, Event] = field(default_factory=dict)  # by writer, the last line of a traceback that breaks off
    lost: set[int] = field(default_factory=set)  # ranks that only say that they lost another
    over: frozenset[Role] = frozenset()
    """Roles that no longer count: the training said that it was done."""
    over_elsewhere: frozenset[Role] = frozenset()
    """Likewise in the job's other logs that report no steps."""
    idle: tuple[int, str] | None = None  # the line, and what it says, that may show that the training learns nothing
    part: int = 0
    """Of the log, counted from 0: an attempt, or an srun step, begins another."""
    step: str = ""  # srun's, that wrote this part (`12.0`), where its end is told
    is_ending: bool = False
    """Whether Slurm ends the step, and nothing was raised since, as by another step."""
    started_at: int | None = None  # where the program's first words stand, as far as it has such
    last_step: When | None = None  # as far as its line says when
    ranked_from: int | None = None  # where the first line starts that a launcher labels with its rank or task
    further: list[Event] = field(default_factory=list)
    """Of roles that say what happened, the events after the pending one, which may have been survived."""
    spread: RankSpread = field(default_factory=RankSpread)
    begins: bool = False  # whether the log shows how the program starts
    began: When | None = None  # the first time that its first lines state
    in_preamble: int = 0  # events of the shell's preamble, above the first rank's line
    late: dict[Role, Event] = field(default_factory=dict)  # the first of each role, after the training said so
    begun: set[tuple[bytes, tuple[int | None, ...]]] = field(default_factory=set)
    """Who wrote which of the words by which a program begins, in this attempt or before it."""

    def begins_again(self, words: bytes, writer: tuple[int | None, ...], offset: int) -> bool:
        """Whether a program that begins is another start of the job, in the same log: after a step it is; before one,
        where the same program had begun, and something failed since."""
        was_begun = (words, writer) in self.begun
        self.started_at = offset if self.started_at is None else self.started_at
        self.begun.add((words, writer))
        return not self.over and bool(self.steps or (was_begun and self.pending.keys() & _ENDED))

    def progress(self, steps: int, finite: int = 0) -> None:
        """Adds training steps, of which so many lines state a loss or a gradient norm."""
        self.steps += steps
        if steps:
            self.doubtful.step()
        if self.not_finite.passed(finite):
            self.seen -= {key for key in self.seen if key[0] in LASTING}  # it may come again
            self.pending = {role: event for role, event in self.pending.items() if event.signature.id not in LASTING}
        if steps and (self.pending or self.over):
            self.since += steps
            if self.since >= STEPS_THAT_SURVIVE:
                self.forget()

    def forget(self) -> None:
        """What was pending did not end the job: training went on, or was done."""
        self.survived += len(self.seen)
        self.doubtful.survive({without_figures(event.line) for event in (*self.pending.values(), *self.further)})
        self.outlived.update(shape_of(event) for role, event in self.pending.items() if role in _OUTLIVED)
        self.pending = {role: event for role, event in self.pending.items() if event.signature.id in LASTING}
        self.seen, self.since, self.reported = set(), 0, False
        self.counts, self.late, self.over, self.over_elsewhere = Counter(), {}, frozenset(), frozenset()
        self.ends, self.cut, self.lost, self.further = [], {}, set(), []

    def finish(self, over: frozenset[Role], is_elsewhere: bool) -> None:
        """The training says that it was done: these roles no longer count, `is_elsewhere`: in other logs either."""
        elsewhere = over if is_elsewhere else self.over_elsewhere
        if self.over > over:
            return  # the training was done before a script said so of what it had run
        self.forget()
        self.over, self.over_elsewhere = over, elsewhere

    def leave_preamble(self, offset: int) -> None:
        """Ranks write from `offset` on: what the shell said above was survived, whatever it was."""
        above = [event for event in self.pending.values() if event.offset < offset and event.is_of_a_shell]
        self.ranked_from = offset
        self.in_preamble += len(above)
        self.pending = {role: event for role, event in self.pending.items() if event not in above}
        self.further = [event for event in self.further if event.offset >= offset or not event.is_of_a_shell]
        self.seen, self.reported = set(), False

    def add_unknown(self, line: Line, hit: Hit, file: int) -> None:
        """A line that says error, and that no signature knows; the first one of those that say most is kept."""
        if self.kind in ("record", "ray") or "unknown" in self.over:
            return
        known = self.pending.get("unknown")
        self._doubt(line)
        if self.doubtful.was_survived(line) or (known is not None and weight(line) <= weight(known.line)):
            return
        is_of_a_shell = self.ranked_from is not None and hit.offset < self.ranked_from and line.writer == NOBODY
        if not goes_on(hit) and not is_of_a_shell:
            when = line.when or last_time(hit.before())
            event = Event(UNKNOWN, "unknown", {"text": line.body}, line, file, hit.offset, hit.number, when)
            self.pending["unknown"], self.since = event._replace(around=time_around(hit, line)), 0

    def _doubt(self, line: Line) -> None:
        """A line that only may be a failure; one that was survived is pending no more."""
        self.doubtful.add(line)
        known = self.pending.get("unknown")
        if known and self.doubtful.was_survived(line) and without_figures(known.line) == without_figures(line):
            del self.pending["unknown"]

    def add_cut(self, line: Line, hit: Hit, file: int, at: str) -> None:
        """The last line of a traceback that breaks off, and where in the program it stands."""
        when = line.when or last_time(hit.before())
        event = Event(CUT, "unknown", {"text": line.body, "at": at}, line, file, hit.offset, hit.number, when)
        self.cut.setdefault(line.writer, event)

    def add(self, signature: Signature, groups: dict[str, str], line: Line, hit: Hit, file: int) -> None:
        """Adds the line of a hit, which a signature knows; `file` is the place of this log among all."""
        self.since = self.since if signature.role == "stall" else 0
        self.counts[signature.id] += 1
        self.is_ending = signature.id in _ENDING or (self.is_ending and signature.role not in RAISED)
        self.spread.add(signature.id, line)
        is_rerun = signature.id in _AT_ONCE  # a log may hold several starts
        process = line.pid if NCCL_WARNS in line.body else None  # each may come up, or not
        key = (signature.id + line.body * is_rerun + groups.get("victim", ""), line.rank, line.label, process)
        ended = read_end(signature.id, groups, hit.before(), hit.after()) if signature.id in _ENDS else ProcessEnd()
        # Of each signature one line is kept, however many ranks wrote others before it.
        is_known = key in self.seen or (len(self.seen) >= _KEPT and self.counts[signature.id] > 1)
        if is_known and (ended.says is None or len(self.ends) >= _KEPT):
            if signature.role == "general":
                self._doubt(line)
            return
        when = line.when or last_time(hit.before())
        event = Event(signature, signature.role, groups, line, file, hit.offset, hit.number, when, ended)
        if ended.says is not None and len(self.ends) < _KEPT:
            self.ends.append(event)
        if is_known:
            return
        self.seen.add(key)
        who = next((who for who in (line.rank, line.label, self.name.rank) if who is not None), None)
        if signature.role in ("effect", "origin") and who is not None:
            self.lost.add(who)
        if signature.role == "general" and (was_logged(hit, line) or (self.over and is_of_thread(hit))):
            event = event._replace(role="unknown")
        if signature.role == "report":
            is_ending = signature.id in ("srun-task", "process-ended") and self.is_ending
            role: Role = role_of_report(event.code, not self.reported)
            event = event._replace(role="echo" if is_ending and event.code == KILLED else role)
            self.reported = True
        if event.role in self.over and event.code in ABORTED:
            said = min(self.late.values(), key=lambda late: ROLES.index(late.role), default=None)
            groups = {**groups, "said": f", after {said.line.body.strip()!r}" if said else ""}
            # Where nothing is left to save, an abort costs as little as a time limit.
            role = "end" if "end" in self.over else "death"
            event = event._replace(signature=ABORTED_AT_EXIT, role=role, groups=groups)
        shape = shape_of(event)
        is_python = signature.id.startswith("exception") and bool(shape)
        is_doubtful = event.role == "unknown" and event.role not in self.over
        if is_doubtful:
            self._doubt(line)
        if (
            event.role in self.over
            or (is_doubtful and self.doubtful.was_survived(line))
            or (self.over and signature.id in _OF_OTHERS)
            or self.outlived[shape] >= OFTEN
            or (is_python and goes_on(hit))
        ):
            self.seen.discard(key)
            if self.over:
                self.late.setdefault(event.role, event)
            return
        is_further = event.role in RAISED and event.role in self.pending
        if (event.role not in self.pending or is_further) and event.line.when is None:
            event = event._replace(around=time_around(hit, line))
        if event.role == "stall":
            self.seen.discard(key)  # each time counts, and none was survived where the training goes on
        if signature.id in _INSTEAD_OF.get(self.pending.setdefault(event.role, event).signature.id, ()):
            self.pending[event.role] = event
        is_new = (earlier := self.pending[event.role]) is event
        is_kept = is_new or (is_further and len(self.further) < _MOST_FURTHER)
        frames = frames_above(hit.before(), line) if is_kept and signature.role in RAISED else ()
        if frames or (is_kept and signature.role in RAISED and "Error: " in line.body):
            groups = {"at": at_text(frames), **groups}
            event = event._replace(groups=groups, frames=frames, more=text_after(hit, line, frames))
        if is_new or (is_rerun and earlier.signature is signature):  # a program may be started again, into the same log
            self.pending[event.role] = event
        elif is_kept:
            self.further.append(event)


_LAST_WORDS: frozenset[Role] = frozenset(("end", "stall"))
"""Roles of what is not survived because ranks write after it: Slurm's word on the job, and warnings."""
_NODE_FAILED = "node-failure"  # Slurm ends the whole job with it
_ENDED: frozenset[Role] = frozenset(("cause", "death", "general", "end", "report"))
"""Roles of lines after which a program may have been started again."""
IDLE = "steps-skipped"
"""The signature of a training that learns nothing."""
HANGS = ("collective-timeout", "watchdog-stuck", "gloo-timeout")
"""Signatures of ranks that waited in vain: no program ends well after that."""
LASTING = ("loss-nan", "grad-norm-nan")
"""Signatures of failures that neither further steps nor the end of the training make good: numbers do."""
SENT_FROM_OUTSIDE = ("terminated", "interrupted")
"""Signatures of a signal that nobody inside the job sends before something failed."""
NAMES_THE_END = ("cancelled", "interrupted")
"""Of what is said while a job is being ended, those that say how."""
_INSTEAD_OF = {
    "nccl-cuda-unsaid": ("nccl-said",),
    "ray-worker-died": ("ray-worker-exit",),
    "workers-closed": ("terminated",),
    **dict.fromkeys(("step-aborted", "terminated", "child-failed", "torchrun-block", "nccl-proxy"), NAMES_THE_END),
}
"""By signature, those of the same role that say more, and take its place."""
_MOST_FURTHER = 50
_ENDING = ("step-aborted", "cancelled")
"""Signatures of Slurm's word that it ends a step: it kills what doesn't end by itself."""
_OUTLIVED: tuple[Role, ...] = ("general", "unknown")
NCCL_WARNS = "NCCL WARN"
OFTEN = 2
"""So often training went on after a line that it counts no more."""
_OF_OTHERS = ("nccl-said",)
"""Of a general role, what a rank which ended, once the training was done, explains too."""
_ENDS = ("torchrun-root", "torchrun-block", "torchrun-worker", "srun-task", "mpi-abort", "process-ended")
"""Signatures of launchers' lines about a process that ended."""
_AT_ONCE = ("bad-option",)
"""Signatures of programs that end as soon as they are started."""


def shape_of(event: Event) -> str:
    """The line of an event, without what differs from one time to the next; empty for a role that always counts."""
    return without_figures(event.line) if event.role in _OUTLIVED else ""
