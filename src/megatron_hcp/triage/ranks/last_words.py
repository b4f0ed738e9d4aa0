"""What a process wrote last before it ended with an exit code of its own: the words in which it says why."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from megatron_hcp.triage.course.kinds import kind_of
from megatron_hcp.triage.events import STEPS_THAT_SURVIVE, Event, FileEvents
from megatron_hcp.triage.exit_codes import ProcessEnd
from megatron_hcp.triage.line import NOBODY, QUIET, Line, last_time, read_line
from megatron_hcp.triage.number import whole
from megatron_hcp.triage.ranks.ended_first import Said
from megatron_hcp.triage.scan import Hit
from megatron_hcp.triage.signatures.exceptions import LAST_WORDS
from megatron_hcp.triage.signatures.progress import HARMLESS, says_bad_end

_LOOKED_AT = 8192
_MOST_LINES, _MOST_PLAIN = 150, 20
"""Lines above the report of an end that are looked at, and those of them that nobody else can have written."""
_REFUSES = re.compile(
    r"(?i)\b(?:mismatch(?:es|ed)?|refus(?:e|es|ing)|giv(?:e|es|ing|en) up|stopp(?:ing|ed)|wrong|illegal|"
    r"does(?: not|n't) (?:match|exist|fit)|too (?:few|many|large|small|old|long|short)|"
    r"not (?:enough|allowed|valid|ready)|no (?:usable|valid|free))\b"
)
_GOES_ON = re.compile(
    r"(?i)\bfall(?:s|ing)? ?back\b|\busing (?:[\w.'-]{1,40} ){1,4}instead\b|\bdefault(?:s? to|ing)\b|"
    r", (?:using|skipping|ignoring|truncating|retrying)\b|\b(?:keys|weights): {0,2}(?:\[\]|\{\}|none|0)"
)
"""What says in the same breath how the program goes on."""
_OF_LAUNCHER = re.compile(rb"torch/distributed/|torchrun|ChildFailedError|failed \(exitcode: |mpirun|exit(?:ed|s)? ")
_BLOCKS = ("torchrun-root", "torchrun-block")
"""Signatures of a summary, far below what the process wrote."""
_OF_SHELL = re.compile(r"(?:not found|No such file or directory|Permission denied)$")
"""What a script may go on without, where nobody who has a rank says it."""
_SIGNED = re.compile(r"(?i)\W{0,3}rank[ :=#-]{0,2}(\d{1,7})\b")
"""A program's own word for its rank, which is no prefix of a logger."""
_NO_WORDS = re.compile(r"Traceback \(most recent|File \"|\W*$|frame #\d")


def keep_last_words(entry: FileEvents, hit: Hit, file: int) -> None:
    """Keeps what stands above the report of an end, or above the end of a rank's own log, as what was said last."""
    if hit.is_last and not hit.line:
        if entry.name.rank is not None or entry.name.local is not None:
            _keep(entry, hit, file, ProcessEnd(None, entry.name.rank, entry.name.local))
    elif entry.ends and entry.ends[-1].offset == hit.offset:
        last = entry.ends[-1]
        if last.ended.is_own and last.signature.id not in _BLOCKS:
            _keep(entry, hit, file, last.ended)


def told_why(parts: Sequence[FileEvents]) -> Said | None:
    """What the only process that launchers saw end by itself wrote last, where it does not say that it lost another."""
    lost = {rank for entry in parts for rank in entry.lost}
    ends = [event for entry in parts for event in entry.ends if event.ended.is_own]
    own = {(event.ended.rank, event.ended.tasks) for event in ends}
    if len(own) != 1:
        return None
    rank, tasks = own.pop()
    ranks = {rank} if rank is not None else {one for some in tasks for one in some[:2]}
    return words_of(parts, ends[0]) if len(ranks) == 1 and not ranks & lost else None


def words_of(parts: Sequence[FileEvents], ended: Event) -> Said | None:
    """What the process of a launcher's report wrote last, where that says why it ended."""
    end = ended.ended
    if not end.is_own:
        return None
    for entry in parts:
        for said in entry.last_words:
            whose, signed = said.ended, _SIGNED.match(said.line.body)
            if signed and whole(signed[1]) != end.rank:
                continue
            is_same = whose.code == end.code and said.file == ended.file and whose.tasks == end.tasks
            is_same = is_same and (None in (whose.rank, end.rank) or whose.rank == end.rank)
            is_own_log = whose.code is None and whose.rank is not None and whose.rank == end.rank
            if is_own_log or (is_same and (whose.local == end.local or whose.local is None)):
                return entry, said._replace(ended=end)
    return None


def _keep(entry: FileEvents, hit: Hit, file: int, ended: ProcessEnd) -> None:
    said = next(_bad(_own(hit, ended)), None)
    if said is not None and len(entry.last_words) < _MOST_LINES:
        at, number, line = said
        when = line.when or last_time(hit.before())
        groups = {"text": line.body.strip()}
        offset = hit.offset - hit.at + at
        entry.last_words.append(Event(LAST_WORDS, "general", groups, line, file, offset, number, when, ended))


def _bad(lines: Iterable[tuple[int, int, Line]]) -> Iterator[tuple[int, int, Line]]:
    for item in lines:
        body = item[2].body
        is_of_shell = item[2].writer == NOBODY and _OF_SHELL.search(body)
        is_survived = is_of_shell or HARMLESS.search(body) or _GOES_ON.search(body)
        if not is_survived and (_REFUSES.search(body) or says_bad_end(body)):
            yield item


def _own(hit: Hit, ended: ProcessEnd) -> Iterator[tuple[int, int, Line]]:
    """The lines above a hit that no other process than one can have written, the last first: where each starts in the
    chunk, its number, and what it says. What stands above several training steps was survived."""
    at, plain, steps = hit.at, 0, 0
    raws = hit.chunk[max(0, hit.at - _LOOKED_AT) : hit.at].removesuffix(b"\n").split(b"\n")
    for above, raw in enumerate(reversed(raws[-_MOST_LINES:]), start=1):
        at -= len(raw) + 1
        line, kind = read_line(raw), kind_of(raw)
        steps += kind is not None and kind.is_step
        if steps >= STEPS_THAT_SURVIVE or plain >= _MOST_PLAIN:
            return
        if not _may_be_of(line, ended) or line.level in QUIET or line.speaker or _OF_LAUNCHER.search(raw[:300]):
            continue
        if line.body.startswith((" ", "\t")) or _NO_WORDS.match(line.body) or kind is not None:
            continue
        plain += 1
        yield max(0, at), hit.number - above, line


def _may_be_of(line: Line, ended: ProcessEnd) -> bool:
    """Whether a line may be of a process: it states who wrote it, and that is the process; or it states nobody."""
    if line.rank is not None and line.rank != ended.rank:
        return False
    if line.label is not None and ended.tasks and not any(line.label in some for some in ended.tasks):
        return False
    return line.local is None or ended.local is None or line.local == ended.local
