"""What stands before the message on a log line, read in one place: labels of launchers and loggers, and times.

Slurm (`3: `, `srun: error: `, `slurmstepd-NODE: error: `), torchrun (`[rank3]:`, `[default0]:`), torch's and Ray's C++
(`[E822 10:00:00 x.cpp:1]`), Ray (`(Worker pid=7, ip=fd00::2)`), NCCL, mpirun, pdsh, Kubernetes and container runtimes,
syslog and the kernel, and Python's loggers. They nest in any order, so they are taken off one by one.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from megatron_hcp.triage.number import number, whole

_LONGEST = 4000
_MOST_PREFIXES = 12
_ANSI = re.compile(r"(?:\x1b|\^\[)\[[0-9;?]*[A-Za-z]|(?:#033)?\[[0-9;]{1,12}m")
"""Colours; also as syslog (`#033[36m`) and terminals (`^[[36m`) show them, and where the escape was lost (`[36m`)."""
_REPEATED = re.compile(r" \[repeated \d{1,7}x across cluster\](?: \(Ray deduplicates logs .{0,400})?$")
"""Ray's word on lines of other actors that it left out."""
_CLOCK = r"(?P<time>\d\d:\d\d:\d\d(?:[.,]\d+)?)"
_DATE = rf"\d{{4}}[-/](?P<month>\d\d)[-/](?P<day>\d\d)[ T_]{_CLOCK}(?:Z|[+-]\d\d:?\d\d)?"
_TIME = re.compile(_DATE)
_GLOG = rf"(?P<level>[EWIF])(?P<month>\d{{1,2}})(?P<day>\d\d) {_CLOCK}"
_GLOG_TIME = re.compile(_GLOG)
_HOST = r"(?P<node>[A-Za-z0-9][\w.-]{0,252})"
_ACTOR = r"[A-Za-z_][\w.:-]{0,80}(?:\[rank=(?P<rank>\d{1,7})\]|\[[^\]]{0,40}\]|\((?:[^()]|\([^()]{0,80}\)){0,160}\))?"
"""Of Ray: `WorkerDict`; NeMo RL adds the rank, Ray Data what it maps."""
_WORD = r"(?P<level>ERROR|CRITICAL|FATAL|WARNING|WARN|INFO|DEBUG)"
_MONTHS = {name: place for place, name in enumerate("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), start=1)}
_PREFIXES = tuple(
    re.compile(text)
    for text in (
        r"\s{0,20}(?P<label>\d{1,6}):(?!\d\d:\d\d\b) ?",
        r"[^|\[\]]{0,80}\d{1,3}%\|[^|]{0,400}\| [^\[\]|]{1,60} \[[^\]]{1,200}\] ?(?=\S)",  # a bar that the text cut off
        r"\[?rank(?P<rank>\d{1,18})(?:\]:?|\s{0,8}\|)\s?",
        r"\[[A-Za-z_]{0,40}(?P<local>\d+)(?:\|\d{1,6})?\]:\s?",
        r"\[(?:\d{1,6},)?(?P<rank>\d+)\]<std(?:out|err)>:\s?",  # mpirun --tag-output, Horovod
        rf"\[{_GLOG} [^\]]{{0,300}}\]\s?",
        r"\[(?P<level>[EWIF]) [^\]\s]{1,100}\]\s?",
        rf"{_GLOG}\s{{1,8}}\d+ [^\]\s]+\]\s*",
        rf"\[{_DATE} (?P<level>[A-Z]) \d{{1,10}} \d{{1,10}}\]\s?",  # Ray's C++
        r"\[Rank (?P<rank>\d+)\]:?\s?",
        r"\[PG [^\]]{0,300}\]:?\s?",
        r"\[c10d\] ",
        rf"\((?:{_ACTOR} )?pid=(?:(?P<pid>\d{{1,10}})|gcs_server|raylet)"
        r"(?:, ip=\[?(?P<node>[\w.:-]{1,100})\]?)?\)\s?",
        r"\((?:raylet|gcs_server|autoscaler)(?:[ ,][^()]{0,100}ip=(?P<node>[\w.:-]{1,100}))?[^()]{0,40}\)\s?",
        r"\w{1,60}\.(?:cc|h):\d{1,6}:\s{1,2}",
        rf"{_HOST}:(?P<pid>\d{{1,10}}):\d{{1,10}} \[(?P<local>\d{{1,6}})\] (?=(?:\S{{1,100}}:\d{{1,6}} )?NCCL )",
        rf"\[{_HOST}\]\[\d{{1,10}}:\d{{1,10}}\]\[(?P<local>\d{{1,6}})\]\[[^\]]{{1,80}}\] (?=NCCL )",
        rf"\[{_HOST}:\d{{1,10}} ?:\d{{1,6}}:\d{{1,10}}\] ",  # UCX
        rf"\[(?:NeMo (?P<level>[EWID]) |[A-Za-z]{{1,20}} )?{_DATE}[^\]]{{0,120}}(?:\]\s*|$)",
        rf"{_DATE} std(?:out|err) [FP] ",  # CRI, the container runtimes of Kubernetes
        rf"{_DATE}\s*(?:[-|:]\s*)?(?:{_WORD.removesuffix(')')}|[EWIDFC])\s+(?![-|:\s]))?",
        rf"(?P<month>\d\d)/(?P<day>\d\d)/\d{{4}} {_CLOCK}\s*(?:[-|:]\s*)?",
        r"\[pod/(?P<node>[\w.-]{1,250})/(?P<container>[\w.-]{1,80})\] ?",  # kubectl logs --prefix
        r"\[[\w./-]{1,60}\] (?=\d{4}-)|\s{0,8}\| (?=\d{4}-)",  # a logger's name, or SageMaker's margin, before the time
        rf"(?:\[[\w.]{{1,80}}\])?\[{_WORD}\](?:\s?\[[^\]]{{1,80}}\])?\s*(?:[-:]\s*)?",
        rf"{_WORD} \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \[?[^\]]{{1,80}}\]\s?",
        rf"(?:{_WORD} )?[\w./-]{{1,80}}:\d{{1,6}} -- ",  # Ray's Python
        rf"(?:[\w.]{{1,80}} )?- {_WORD} - ",
        rf"[\w.]{{1,80}}: \[{_WORD}\] ",
        rf"{_WORD}\s*\| [\w.<>-]{{1,80}}:[\w.<>-]{{1,80}}:\d{{1,6}} - ",  # loguru
        rf"{_WORD}\s*[:|-]\s*(?:[\w.]+:)?\s*",
        rf"\[{_WORD}[:|][^\]]{{1,120}}\]\s?|>> |std(?:err|out) \| ",  # Transformers, ms-swift, loguru's catchers
        rf"(?:\(AReaL\) )?\d{{8}}-\d\d:\d\d:\d\d(?:\.\d{{1,9}})? [\w. -]{{1,60}} {_WORD}: ",
        r"(?P<speaker>srun|sbatch|salloc|slurmstepd|hcp(?!-))(?:-(?P<node>[\w.-]{1,100}))?: "
        r"(?:(?P<level>error|fatal|debug\d?|info): )?\s*",
        r"(?P<level>error|fatal): (?=\*\*\* )",  # Slurm's own, after a time
        rf"(?P<name>[A-Z][a-z]{{2}}) {{1,2}}(?P<day>\d{{1,2}}) {_CLOCK} {_HOST} [\w.()-]{{1,60}}(?:\[\d{{1,10}}\])?: ",
        r"(?:kernel: )?\[ {0,12}\d{1,12}\.\d{6}\] |kernel: ",
        rf"\[[A-Z][a-z]{{2}} (?P<name>[A-Z][a-z]{{2}}) {{1,2}}(?P<day>\d{{1,2}}) {_CLOCK} \d{{4}}\] ",
        rf"\d\d:\d\d:\d\d(?:[.,]\d{{1,9}})?\s(?:\s*(?:{_WORD}|SUCCESS|TRACE)\s+(?![-|:\s]))?",
        r"(?P<node>[a-z][a-z0-9_.-]{0,80}[_-]\d{1,4})\s{1,20}\| ",  # docker compose
        r"(?!python\d)(?P<node>[a-z][a-z0-9-]{0,62}\d(?:\.[a-z][a-z0-9.-]{0,180})?|"
        r"\d{1,3}(?:\.\d{1,3}){3}): (?!tasks? \d)",  # pdsh
        r"std(?:out|err): ",  # a test's, or accelerate's
        # whatever stands before a rank's tag
        r"[^\[\]{}\"'=]{1,100}(?=\[(?:rank|default)\d{1,6}\]:)|[a-z_]{1,40}/\d{1,6} (?=\[\d{1,6}\]:)",
        r"> ?|`{1,3}(?=\S)|[-*•#] {1,3}(?=\S)",  # a quotation, code or a list, where a log was pasted
    )
)
_PYTHONS_WARNING = re.compile(r"[^:\n]{1,300}:\d{1,7}: \w{0,60}Warning: ")
INFORMING = frozenset(("I", "D", "INFO", "DEBUG", "info", "debug"))
QUIET = INFORMING | {"W", "WARNING", "WARN"}
"""Levels of lines that warn or inform: no program ended because of what they say."""

When = tuple[int, int, float]
"""(month, day, seconds of the day): what all formats state."""
Writer = tuple[int | None, int | None, int | None, int | str | None]
"""(rank, label, local rank, process id or pod), each where the line states it."""
NOBODY: Writer = (None, None, None, None)
"""Of a line that states none of them, as a shell's."""


class Line(NamedTuple):
    """A log line taken apart. `label` is srun's task number, `local` a rank on its node, `rank` a global rank."""

    body: str
    label: int | None
    local: int | None
    rank: int | None
    node: str | None
    when: When | None
    level: str = ""
    """As its logger writes it: `E`, `ERROR`, `error`; empty where none is stated."""
    speaker: str = ""
    """`srun` or `slurmstepd`, where Slurm itself speaks."""
    pid: int | None = None
    pod: str = ""
    """The pod and its container, of Kubernetes."""

    @property
    def writer(self) -> Writer:
        """What tells lines of one process from those of others in the same log."""
        return self.rank, self.label, self.local, self.pod or None if self.pid is None else self.pid


def read_line(raw: bytes) -> Line:
    """The line without its prefixes, and what these say.

    >>> read_line(b"12: [rank12]: ValueError: no")[:5]
    ('ValueError: no', 12, None, 12, None)
    """
    text = _ANSI.sub("", _end_of(raw).decode("utf-8", "replace"))
    text, said = _without_container(text.rstrip("\r\n").rpartition("\r")[2])
    text = _REPEATED.sub("", text) if "[repeated " in text else text
    for _ in range(_MOST_PREFIXES):
        match = next((found for pattern in _PREFIXES if (found := pattern.match(text))), None)
        if match is None or not match[0]:
            break
        if match[0].startswith(("[rank", "rank")) and "|" not in match[0]:
            said.pop("level", None)  # a launcher's logger passes on what a rank wrote: the level is not the rank's
        said = {**{name: value for name, value in match.groupdict().items() if value is not None}, **said}
        text = text[match.end() :]
    found = _TIME.search(text) if "time" not in said else None
    if found:
        said |= found.groupdict()
    if "level" not in said and "Warning: " in text and _PYTHONS_WARNING.match(text):
        said["level"] = "WARNING"
    return Line(
        text.strip() if not text.startswith((" ", "\t")) else text.rstrip(),
        whole(said.get("label")),
        whole(said.get("local")),
        whole(said.get("rank")),
        said.get("node"),
        _when(said),
        said.get("level", ""),
        said.get("speaker", ""),
        whole(said.get("pid")),
        f"{said['node']}/{said['container']}" if "container" in said else "",
    )


_TEXTS = ("log", "message", "msg", "textPayload")
_LEVELS = ("level", "severity", "levelname")


def without_figures(line: Line) -> str:
    """What tells a line from others, without what differs from one time to the next."""
    return re.sub(r"\d+", "", line.body[:200])


_NAMES_WHAT = re.compile(r"\b[A-Z]\w{2,60}(?:Error|Exception): \S|\bfatal\b|\bFATAL\b|\bCRITICAL\b")
_FAILED = re.compile(r"(?i)\bfail(?:ed|ure)?\b|\b(?:un|not )able\b|\bdenied\b|\b(?:can't|cannot)\b|\binvalid\b")
"""Of what Slurm's programs say, what names the fault, and gives no hint."""


def weight(line: Line) -> int:
    """How much a line that says error, and that no row knows, may say: it names an exception, or calls itself fatal;
    a warning says least."""
    if line.level in QUIET:
        return 0
    if line.level in ("CRITICAL", "FATAL", "fatal", "F") or _NAMES_WHAT.search(line.body):
        return 2
    return 2 if line.speaker and _FAILED.search(line.body) else 1


def _without_container(text: str) -> tuple[str, dict[str, str]]:
    """The text of a line that a container's runtime or a collector wraps: `{"log":"text\\n","stream":"stderr"}`.

    Of a text of several lines the last one, which names the exception of a traceback.
    """
    if not text.startswith('{"'):
        return text, {}
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return text, {}
    log = next((said[name] for name in _TEXTS if isinstance(said.get(name), str)), None)
    if log is None:
        return text, {}
    time = _TIME.match(str(said.get("time") or said.get("timestamp")))
    level = next((said[name].upper() for name in _LEVELS if isinstance(said.get(name), str)), None)
    last = log.rstrip().rpartition("\n")[2] if log.strip() else ""
    return last, (time.groupdict() if time else {}) | ({"level": level} if level else {})


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


def seconds_of(when: When) -> float:
    month, day, seconds = when
    return (31 * month + day) * 86_400 + seconds


def _when(said: dict[str, str]) -> When | None:
    if "time" not in said:
        return None
    hours, minutes, seconds = said["time"].replace(",", ".").split(":")
    month = _MONTHS.get(said["name"]) if "name" in said else whole(said["month"])
    day, hour, minute, second = whole(said["day"]), whole(hours), whole(minutes), number(seconds[:12])
    if month is None or day is None or hour is None or minute is None or second is None:
        return None  # digits of another script
    return month, day, hour * 3600 + minute * 60 + second
