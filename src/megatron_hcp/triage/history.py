"""The parts of a job's logs: the shell's preamble, attempts, and srun's steps, each with its own events."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from megatron_hcp.triage.course.kinds import counted_of, kind_of
from megatron_hcp.triage.events import NCCL_WARNS, OFTEN, Event, FileEvents
from megatron_hcp.triage.inputs.log_name import kind_of_log, read_name
from megatron_hcp.triage.line import Line, last_time, read_line, seconds_of, without_figures
from megatron_hcp.triage.raised.survived import RAISED, RAYS_PROCESS
from megatron_hcp.triage.scan import Hit
from megatron_hcp.triage.signatures.progress import NCCL_IS_UP, ONE_DONE, is_of_training
from megatron_hcp.triage.signatures.row import Role

_LABELS = rb"(?:\s{0,12}\d{1,6}: (?!\d\d:)\S|\[default\d{1,6}\]:|\[(?:\d{1,6},)?\d{1,6}\]<std(?:out|err)>:)"
_LABEL, _BELOW = re.compile(_LABELS), re.compile(rb"\n" + _LABELS)
"""A line that a launcher labels with its task or rank, as `srun --label`, torchrun's and mpirun's tags do. `[rank3]:`
is none of these: torch labels only some lines of a rank so, and what stands above the first may be the same rank's."""
_PREAMBLE = 4 << 20
"""Bytes at the start of a log in which the first of these is looked for."""
STEP_TOKEN = b"Terminating StepId="
_STEP_ENDS = re.compile(rb"Terminating StepId=(\d{1,12}\.\d{1,9})\b|\*\*\* STEP (\d{1,12}\.\d{1,9}) ON ")
_JOB_ENDS = re.compile(rb"\*\*\* (?:JOB|STEP) (\d{1,12})(?:\.\w{1,9})? ON \S+ CANCELLED")
_AGENT = re.compile(rb"[EWI]\d{4} \S{1,20}\s{1,8}(\d{1,10}) torch/distributed/elastic/")
"""torchrun's agent and its process id, of which each attempt has one report on a worker that failed."""
_REPORT = b"failed (exitcode: "
_CLOSES = b" closing signal SIG"
_OF_AGENT = re.compile(rb"\[?[EWI]\d{4} \S{1,24}\s{1,8}\d{1,10} torch/distributed/elastic/")
_NO_START = re.compile(rb"[Ee]rror|ERROR|Exception|Traceback|exitcode|closing signal|srun: |slurmstepd")
_FIRST, _SHORTEST = 12, 16
"""Lines at the start of a log that are kept, to be known again, and the length of their text."""
_LOOKED_THROUGH, _BELOW_END = 8192, 8192
_RAISED = re.compile(rb"(?:[\w.]{1,80}\.)?[A-Z]\w{1,60}(?:Error|Exception|Interrupt|Exit|Iteration)\b")
"""The last line of an exception: a process has ended there, where the log is that of one."""
_OF_GONE: tuple[Role, ...] = ("unknown", "effect")
_DRIVER_ENDS = re.compile(rb"ray\.[\w.]{1,80}\.(?:TrainingFailed|WorkerGroup|Controller)Error: ")
_OF_SCRIPT = b", in <module>"
_WANDB_TIME = re.compile(r"\brun-(....)(..)(..)_(..)(..)(..)-")
_LATER_S = 600
_SLURMS = (b"srun: ", b"slurmstepd: ", b"slurmstepd-")


class History:
    """The parts of the logs that were read, in order; the last one is being read."""

    def __init__(self) -> None:
        self.files: list[FileEvents] = []
        self._looked = 0
        self._step_ended = False
        self._first: frozenset[str] | None = None
        """The log's first lines that its program wrote, without figures"""
        self._opening = ""
        """The first of these"""
        self._again_at: int | None = None
        """Where the program was started again, by torchrun's agent, which only says so where it informs"""
        self._started_at = 0
        """Where that was last"""
        self._counted = 0
        self._driver_ended = False
        self._reports: dict[tuple[int | str | None, bytes], tuple[int, int]] = {}
        """torchrun's agent (the task or node of its lines, its process id) -> where it reported, and the steps above"""

        self._job: tuple[bytes, int, int] | None = None
        """The job that Slurm said last it ended in this log, where, and the steps above"""

    @property
    def entry(self) -> FileEvents:
        """The part that is being read."""
        return self.files[-1]

    def begin_log(self, path: Path, begins: bool, restart: int | None = None) -> None:
        """Begins a log; `begins`: it shows how the program starts; `restart`: of a pod's containers, which wrote it."""
        name = read_name(str(path))
        name = name if restart is None else name._replace(attempt=restart)
        entry = FileEvents(path, name, name.attempt, kind=kind_of_log(str(path)), begins=begins)
        if name.attempt:
            for other in self.files:
                if other.attempt is not None and other.attempt < name.attempt:
                    entry.outlived |= _known(other)
        self.files.append(entry)
        self._looked, self._step_ended, self._reports = 0, False, {}
        self._first = self._again_at = self._job = None
        self._started_at, self._counted, self._driver_ended = 0, 0, False

    def steps_of(self, hit: Hit) -> int:
        """The steps down to a hit; below the exception that ended Ray's driver, not what Ray passes on late."""
        begin, self._counted = hit.at - (hit.offset - self._counted), hit.offset + len(hit.line)
        steps = hit.progress
        if steps and self._driver_ended:
            raws = hit.chunk[max(0, begin) : hit.at + len(hit.line)].split(b"\n")
            own = (raw for raw in raws if not RAYS_PROCESS.match(raw))
            steps = sum(kind is not None and kind.is_step for kind in map(kind_of, own))
        if _DRIVER_ENDS.match(hit.line):
            above = hit.chunk[max(0, hit.at - _LOOKED_THROUGH) : hit.at]
            self._driver_ended = _OF_SCRIPT in above.rpartition(b"Traceback (most recent call last)")[2]
        return steps

    def outlive_end(self, end: Hit) -> None:
        """Forgets, at the end of a log, a cancelled job where a time below is minutes later: another wrote on."""
        event = self.entry.pending.get("end")
        if event is None or event.line.when is None or event.signature.id != "job-cancelled":
            return
        text = end.chunk[max(0, end.at - _BELOW_END, end.at - (end.offset - event.offset)) : end.at]
        last = last_time(_WANDB_TIME.sub(r"\1-\2-\3 \4:\5:\6 ", text.decode("utf-8", "replace")))
        if last and seconds_of(last) > seconds_of(event.line.when) + _LATER_S:
            _keep(self.entry, [other for other in _events(self.entry) if other.offset > event.offset])

    def survive(self, raw: bytes, line: Line) -> None:
        """Forgets what a line shows to have been survived: peers that are gone at a good end, and NCCL's warnings."""
        entry = self.entry
        if ONE_DONE in raw:
            entry.pending = {role: event for role, event in entry.pending.items() if role not in _OF_GONE}
        if NCCL_IS_UP in raw:
            said = (*entry.pending.values(), *entry.further)
            _withdraw(entry, [event for event in said if _is_warning_of_nccl(event.line, line)])

    def follow(self, hit: Hit) -> None:
        """Looks at where a hit stands: below the ranks' first line, or below the end of an srun step."""
        if self.entry.ranked_from is None and self._looked < _PREAMBLE and hit.offset > self._looked:
            at = _first_ranked(hit, hit.at - (hit.offset - self._looked)) if hit.is_labelled else None
            if at is not None:
                self.entry.leave_preamble(hit.offset - hit.at + at)
            self._looked = hit.offset
        if hit.last_step:
            self.entry.last_step = read_line(hit.last_step).when or self.entry.last_step
            self.entry.course = counted_of(hit.last_step)
        if self._again_at is not None and hit.offset >= self._again_at:
            self.entry.attempt, self._started_at, self._again_at = self.entry.attempt or 0, self._again_at, None
            self.begin(self.entry.attempt + 1).begins = True
        if self._first is None:
            shapes = _shapes(hit.chunk[:_LOOKED_THROUGH])[:_FIRST] if hit.offset == hit.at else []
            self._first, self._opening = frozenset(shapes), shapes[0] if shapes else ""
        if not hit.line:
            return
        if self._first and (_CLOSES in hit.line or _REPORT in hit.line):
            self._look_for_start(hit)
        elif self._first and self._again_at is None and self._is_end_of_process(hit):
            below = hit.at + len(hit.line) + 1
            shape = _shape(hit.chunk[below : below + _BELOW_END].partition(b"\n")[0])
            if shape and shape == self._opening and not self._recurs(hit, shape):
                self._again_at = hit.offset + len(hit.line) + 1
        if _REPORT in hit.line and self._again_at is None:
            self._follow_report(hit)
        if ended := _JOB_ENDS.search(hit.line):
            self._follow_job(hit, ended[1])
        if self._step_ended and not any(speaker in hit.line[:80] for speaker in _SLURMS):
            self.begin(self.entry.attempt)
            self._step_ended = False
        if ended := _STEP_ENDS.search(hit.line):
            self.entry.step = self.entry.step or (ended[1] or ended[2]).decode()
            self._step_ended = True

    def begin(self, attempt: int | None) -> FileEvents:
        """Begins another part of the log: a further attempt, or what comes after an srun step."""
        last = self.entry
        entry = FileEvents(last.path, last.name, attempt, kind=last.kind, part=last.part + 1)
        entry.begun, entry.begins, entry.ranked_from = last.begun, last.begins, last.ranked_from
        if attempt == last.attempt:
            entry.over_elsewhere = last.over_elsewhere
            is_clearing = last.is_ending and not is_of_training(last.over)
            entry.over = last.over if is_clearing else last.over_elsewhere
            entry.outlived, entry.is_ending = last.outlived, last.is_ending
        else:
            entry.outlived = _known(last)
        self.files.append(entry)
        self._reports, self._driver_ended = {}, False
        return entry

    def _is_end_of_process(self, hit: Hit) -> bool:
        """Whether the only process that writes into a log may have ended with a hit: what begins below it is another
        run, appended to the same file."""
        name = self.entry.name
        return (name.rank is not None or name.local is not None) and _RAISED.match(hit.line) is not None

    def _look_for_start(self, hit: Hit) -> None:
        """Looks below an end for the first lines of the log: then its program was started again."""
        at = hit.at + len(hit.line) + 1
        for raw in hit.chunk[at : hit.at + _BELOW_END].split(b"\n"):
            shape = _shape(raw)
            if self._first and shape in self._first and not self._recurs(hit, shape):
                self._again_at = hit.offset + at - hit.at
                return
            at += len(raw) + 1

    def _recurs(self, hit: Hit, shape: str) -> bool:
        """Whether the program writes a line in its training too: a rank may write it on while it is ended."""
        begin = hit.at - (hit.offset - self._started_at)
        raws = hit.chunk[max(0, begin, hit.at - _LOOKED_THROUGH) : hit.at].split(b"\n")
        steps = [place for place, raw in enumerate(raws) if (kind := kind_of(raw)) and kind.is_step]
        return bool(steps) and any(_shape(raw) == shape for raw in raws[steps[0] :])

    def _follow_report(self, hit: Hit) -> None:
        """Looks at torchrun's report on a worker that failed: if its agent reported before, it has started all workers
        again in between, which it only says where it informs. Agents of several nodes can have one process id."""
        if found := _AGENT.search(hit.line):
            line = read_line(hit.line)
            agent = line.node if line.label is None else line.label, found[1]
            if first := self._reports.get(agent):
                self._divide(*first)
            self._reports[agent] = hit.offset, self.entry.steps + hit.progress

    def _follow_job(self, hit: Hit, job: bytes) -> None:
        """Looks at Slurm's word that it ends a job: where it ended another one above, the log was appended to."""
        if self._job and self._job[0] != job:
            self._divide(*self._job[1:])
        self._job = job, hit.offset, self.entry.steps + hit.progress

    def _divide(self, offset: int, steps: int) -> None:
        """What stands below a place of the part that is being read is of a further attempt."""
        last = self.entry
        last.attempt = last.attempt or 0
        entry = self.begin(last.attempt + 1)
        entry.steps, last.steps = last.steps - steps, steps
        events = _events(last)
        _keep(entry, [event for event in events if event.offset > offset])
        _keep(last, [event for event in events if event.offset <= offset])
        entry.ends = [event for event in last.ends if event.offset > offset]
        last.ends = [event for event in last.ends if event.offset <= offset]
        entry.cut = {writer: event for writer, event in last.cut.items() if event.offset > offset}
        last.cut = {writer: event for writer, event in last.cut.items() if event.offset <= offset}


def _shape(raw: bytes) -> str:
    """A line that a program may begin with, without its figures; empty for an agent's, an error, a step, few words."""
    if _OF_AGENT.match(raw) or _NO_START.search(raw) or ((kind := kind_of(raw)) and kind.is_step):
        return ""
    text = without_figures(read_line(raw))
    return text if len(text) >= _SHORTEST and not text.startswith((" ", "\t")) else ""


def _shapes(text: bytes) -> list[str]:
    """The first lines that a program may begin with, above the first end of torchrun's workers."""
    ends = [at for words in (_CLOSES, _REPORT) if (at := text.find(words)) >= 0]
    lines = text[: min(ends, default=len(text))].split(b"\n")[:-1]
    return [shape for raw in lines if (shape := _shape(raw))]


def parts_by_step(files: Sequence[FileEvents]) -> list[list[FileEvents]]:
    """The parts of the logs by srun's step, in the order of the steps; a log that names none belongs to each."""
    steps: dict[str, list[FileEvents]] = {}
    other: list[FileEvents] = []
    step, path = "", None
    for entry in files:
        if entry.path != path:
            step, path = "", entry.path
        step = entry.step or step
        (steps.setdefault(step, []) if step else other).append(entry)
    return [[*parts, *other] for parts in steps.values()] or [other]


def _events(entry: FileEvents) -> list[Event]:
    return sorted((*entry.pending.values(), *entry.further), key=lambda event: event.offset)


def _keep(entry: FileEvents, events: Sequence[Event]) -> None:
    """The part has these events, in order, and no others."""
    entry.pending = {event.role: event for event in reversed(events)}
    entry.further = [event for event in events if event.role in RAISED and event is not entry.pending[event.role]]


def _withdraw(entry: FileEvents, warned: Sequence[Event]) -> None:
    """Takes NCCL's warnings of one process out of a part: the next event of a role takes the place of its first."""
    if not warned:
        return
    entry.seen -= {(event.signature.id, event.line.rank, event.line.label, event.line.pid) for event in warned}
    entry.further = [event for event in entry.further if event not in warned]
    for role in [role for role, event in entry.pending.items() if event in warned]:
        del entry.pending[role]
        if following := next((event for event in entry.further if event.role == role), None):
            entry.pending[role] = following
            entry.further.remove(following)


def _first_ranked(hit: Hit, begin: int) -> int | None:
    """Where in a hit's chunk, from `begin` to the hit, the first line starts that a launcher labels."""
    end = hit.at + len(hit.line)
    if begin <= 0 and _LABEL.match(hit.chunk, 0, end):
        return 0
    found = _BELOW.search(hit.chunk, max(0, begin - 1), end)
    return found.start() + 1 if found else None


def _known(entry: FileEvents) -> Counter[str]:
    """The lines after which a part trained on: where another attempt prints them too, they are no news."""
    return Counter(dict.fromkeys(entry.outlived, OFTEN))


def _is_warning_of_nccl(line: Line, other: Line) -> bool:
    """Whether NCCL warned in a line, in the process of another one."""
    return NCCL_WARNS in line.body and line.writer == other.writer
