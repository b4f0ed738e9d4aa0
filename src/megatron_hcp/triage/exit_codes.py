"""How a process ended: its exit code, as launchers report it, and what that says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from signal import Signals
from typing import Literal, NamedTuple

from megatron_hcp.triage.line import When, read_line
from megatron_hcp.triage.names import named_node, node_name
from megatron_hcp.triage.number import whole
from megatron_hcp.triage.signatures.row import Role

_SIGNALS = {
    "Killed": 9,
    "Segmentation fault": 11,
    "Bus error": 7,
    "Aborted": 6,
    "Floating point exception": 8,
    "Out Of Memory": 9,
    "Illegal instruction": 4,
    "Quit": 3,
    "Terminated": 15,
    "Interrupt": 2,
    "Hangup": 1,
}
KILLED = -_SIGNALS["Killed"]
_FIRST_SIGNAL = 128
"""Codes above are a shell's word for a signal."""
_BY_KILL = "killed (SIGKILL): usually memory of the node"
_CODES = {
    1: "an error (read the traceback)",
    2: "wrong arguments",
    9: _BY_KILL,
    16: "asked to resume so that a suspicious result can be told from a faulty machine",
    17: "a result failed its validation: suspect the machine",
    126: "the program may not be executed",
    127: "the program was not found",
    129: "its session was lost (SIGHUP)",
    130: "interrupted (SIGINT)",
    132: "an illegal instruction: the program was built for another processor",
    134: "aborted (SIGABRT)",
    135: "a bus error: usually shared memory (/dev/shm) is full",
    137: _BY_KILL,
    138: "a SIGUSR1 that it does not handle",
    139: "a segmentation fault",
    140: "a SIGUSR2 that it does not handle",
    143: "terminated (SIGTERM)",
    152: "its limit of processor time was reached (SIGXCPU)",
    153: "its limit of a file's size was reached (SIGXFSZ)",
}

_GROUPS = ("code", "code2", "code3", "code4")
"""Groups of a launcher's patterns that hold an exit code."""
_SIGNAL_GROUPS = ("signal", "signal2", "signal3", "signal4")
"""Groups that hold a signal: its number, or its name."""
_IN_ORDER = frozenset((Signals.SIGHUP, Signals.SIGINT, Signals.SIGTERM, Signals.SIGABRT))
"""Signals that end a job in order, and the one by which a process ends itself."""
CAME_TO_DIE = frozenset(
    (9, *(-signal for signal in Signals if signal not in _IN_ORDER), 132, 135, 136, 137, 138, 139, 140, 152, 153)
)
"""Died of a signal that nobody sends to end a job in order: killed, a crash, or a signal that it did not handle; of a
shell's words for them those that are no program's own codes."""
WAS_ENDED = frozenset((-2, -15, 130, 143))
"""Interrupted or terminated: somebody asked it to end."""
INTERRUPTED = frozenset((-2, 130))
"""By a person, as Ctrl-C does."""
ABORTED = frozenset((-6, 134))
"""Ended by its own abort: so does a rank that waited in vain, and so do others that failed."""
REFUSED = frozenset((2, 126, 127))
"""Wrong arguments, or a program that cannot be started here: before the first step, it would end so again."""
ILLEGAL = frozenset((-4, 132))
"""An illegal instruction, at whatever step."""
CRASHED = frozenset((-11, 139))
"""A segmentation fault."""
BUS_ERROR = frozenset((-7, 135))
"""Memory that was promised was not there: of training jobs nearly always /dev/shm."""
SAYS_MORE = frozenset((16, 17))
"""Codes that a trainer chooses to say why it ends."""


def exit_code(groups: Mapping[str, str]) -> int | None:
    """The exit code that a launcher's report states, negative for a signal; `groups` are those of its pattern."""
    how = groups.get("how") or groups.get("how2") or ""
    for words, number in _SIGNALS.items():
        if how.startswith(words):
            return -number
    for name in _SIGNAL_GROUPS:
        if signal := _number(groups.get(name) or ""):
            return -signal
    match = re.search(r"exit code (-?\d+)", how)
    return whole(match[1]) if match else whole(next((groups[name] for name in _GROUPS if groups.get(name)), None))


class ProcessEnd(NamedTuple):
    """What a launcher says about how a process ended; of srun, all that it says in one line."""

    says: Literal["torchrun", "srun", "launcher"] | None = None
    rank: int | None = None
    local: int | None = None
    host: str | None = None
    pid: int | None = None
    code: int | None = None
    """Negative for a signal."""
    when: When | None = None
    tasks: tuple[range, ...] = ()
    """srun's numbers: ranks, or nodes where another launcher starts the ranks."""

    @property
    def is_own(self) -> bool:
        """Whether the process itself chose to end with an error."""
        return self.code is not None and 0 < self.code < _FIRST_SIGNAL

    @property
    def is_signalled(self) -> bool:
        return self.code is not None and (self.code < 0 or self.code > _FIRST_SIGNAL)


_BLOCK = 4
"""Lines of torchrun's block on a worker above its exit code: its place in the list, time, host, rank."""
_WHO = re.compile(
    r"process rank (?P<rank>\d{1,9}) with PID (?P<pid>\d{1,10}) on node (?P<host>\S{1,253}) exited|"  # Open MPI
    r"RANK (?P<rank2>\d{1,9}) PID (?P<pid2>\d{1,10}) RUNNING AT (?P<host2>\S{1,253})|"  # Intel MPI
    r"Process name: (?:\[(?:[^\[\]]|\[[\d,]{1,30}\]){1,100}, ?)?(?P<rank3>\d{1,9})\]?$",
    re.M,
)
"""Of whom a launcher speaks in a line, or just above an exit code: Open MPI and PRTE, Intel MPI, Horovod."""
_ABORT = 400
"""Of what stands below the word that a rank called MPI_Abort, so much tells its code."""
_NUMBERED = re.compile(
    r"(?i:(?<!\[)\brank[ :#=]{1,3}|\[rank: )(?P<rank>\d{1,9})\b(?:.{0,60}?\bPID (?P<pid>\d{1,10}))?|"
    r"(?i:\bprocess|\blocal[ _]rank)[ :#=]{1,3}(?P<local>\d{1,3})\b"
)
"""Likewise in the line alone: composer (`Rank 2 crashed`), Lightning (`[rank: 1] Child process with PID 7`),
torch.multiprocessing (`process 2 terminated`, of its node)."""


def read_end(signature: str, groups: Mapping[str, str], before: str, after: str) -> ProcessEnd:
    """What a launcher's line says about a process that ended; an empty record where it says nothing about one.

    Args:
        signature: the row that knows the line; `groups` are those of its pattern.
        before: the text above the line.
        after: the text from the line's start on.
    """
    line = after.partition("\n")[0]
    if signature == "torchrun-root":
        return read_block(after.splitlines()[1:12])
    if signature == "torchrun-block":
        return read_block([*before.splitlines()[-_BLOCK:], line])
    if signature == "torchrun-worker":
        pid = re.search(r"\(pid: (\d{1,10})\)", line)
        return ProcessEnd(
            "torchrun", None, whole(groups["local"]), None, whole(pid[1] if pid else None), exit_code(groups)
        )
    if signature == "srun-task":
        return ProcessEnd(
            "srun", host=node_name(groups["host"]), code=exit_code(groups), tasks=tasks_of(groups["tasks"])
        )
    if signature == "mpi-abort":
        code = re.search(r"(?i)(?:with errorcode|errorcode:) {1,4}(-?\d{1,9})", after[:_ABORT])
        return ProcessEnd("launcher", whole(groups["rank"]), code=whole(code[1] if code else None))
    return _of_any(groups, before, line) if signature == "process-ended" else ProcessEnd()


def _of_any(groups: Mapping[str, str], before: str, line: str) -> ProcessEnd:
    """What a launcher that has no form of its own says: who it is stands in the line, or just above it."""
    above = list(_WHO.finditer("\n".join(before.splitlines()[-3:])))
    found = _WHO.search(line) or _NUMBERED.search(line) or (above[-1] if above else None)
    if found is None:
        return ProcessEnd()
    said = found.groupdict()
    rank, pid, host = (_one_of(said, name) for name in ("rank", "pid", "host"))
    local = whole(said.get("local"))
    return ProcessEnd("launcher", whole(rank), local, node_name(host), whole(pid), exit_code(groups))


def _one_of(said: Mapping[str, str | None], name: str) -> str | None:
    """The value of the group of a name, or of the same name with a number behind it."""
    return next((value for key, value in said.items() if value and key.rstrip("0123456789") == name), None)


def read_block(lines: Sequence[str]) -> ProcessEnd:
    """The fields of torchrun's block on a worker that failed."""
    found = ProcessEnd("torchrun")
    for raw in lines:
        line = read_line(raw.encode("utf-8", "replace"))
        key, colon, value = (part.strip() for part in line.body.partition(":"))
        numbers = [whole(number) for number in re.findall(r"-?\d+", value)] if colon else []
        if colon and key == "time":
            found = ProcessEnd("torchrun", when=line.when)  # a block begins
        elif colon and key == "host":
            found = found._replace(host=named_node(value))
        elif numbers and key == "rank":
            found = found._replace(rank=numbers[0], local=numbers[1] if len(numbers) > 1 else None)
        elif numbers and key == "exitcode":
            return found._replace(code=numbers[0], pid=numbers[1] if len(numbers) > 1 else None)
    return found


def tasks_of(text: str) -> tuple[range, ...]:
    """Task numbers as srun writes them.

    >>> tasks_of("0-7,9")
    (range(0, 8), range(9, 10))
    """
    pairs = [part.partition("-") for part in text.split(",") if part]
    ends = [(whole(first), whole(last or first)) for first, _, last in pairs]
    return tuple(range(first, last + 1) for first, last in ends if first is not None and last is not None)


def _number(signal: str) -> int | None:
    """The number of a signal that is given as a number or as a name (`SIGKILL`)."""
    return Signals[signal].value if signal in Signals.__members__ else whole(signal)


def role_of_report(code: int | None, is_first: bool) -> Role:
    """What a launcher's word is, by the exit code in it.

    The first report that a task died of a signal outranks exceptions: no log of the task can say so. An
    abort does not: that is how a rank ends that waited in vain. Nor is a termination: the launcher asked for it.
    """
    if code in WAS_ENDED:
        return "echo"
    if is_first and code in CAME_TO_DIE:
        return "death"
    return "general" if code in SAYS_MORE else "report"


def explain_code(code: int) -> str:
    """An exit code in words: `-9` and `137` are a signal's."""
    known = _CODES.get(_as_shells_say(code))
    if not known and -code in set(Signals):
        known = f"a signal that it does not handle ({Signals(-code).name})"
    return f"exit code {code}: {known}" if known else f"exit code {code}"


def _as_shells_say(code: int) -> int:
    """The code of a signal as 128 and its number, which others state as less than 0, or as that in eight bits."""
    if code in _EIGHT_BITS:
        code -= 256
    return 128 - code if code < 0 else code


_EIGHT_BITS = frozenset(256 + code for code in CAME_TO_DIE | ABORTED if code < 0)
"""A negative code as a shell shows it: of the signals by which a process dies; others may be a program's own codes."""
_MEMORY_STEP = (
    "dmesg -T on {node} shows whether the kernel killed it because memory ran out: then fewer data loader workers, "
    "less offload to the host, or more memory (--mem=0)"
)
_SENT_STEP = (
    "who sends it? sbatch --signal does before the time limit, and other schedulers before they preempt: have the "
    "program handle it (save, and end), or send it to the batch script alone (--signal=B:USR1)"
)
_STEPS = {
    1: "read that rank's own stderr; torchrun --log-dir DIR, or @record on main(), keeps its traceback",
    2: "that rank's own stderr names the option that it refuses; PROGRAM --help lists those that it has",
    9: _MEMORY_STEP,
    129: "start it with sbatch or inside tmux, so that it outlives the terminal",
    132: "build its extensions for this node's processor, or start it on the kind that they were built for",
    134: "read that rank's own stderr: the reason stands before the abort (an assertion, what(), a watchdog)",
    135: "df -h /dev/shm on {node}: give the container more (--shm-size, an emptyDir of medium Memory)",
    137: _MEMORY_STEP,
    138: _SENT_STEP,
    139: "PYTHONFAULTHANDLER=1 shows the Python line; were the extensions built for this PyTorch and CUDA?",
    140: _SENT_STEP,
}
"""What to look at where an exit code is all that is known."""


def step_of_code(code: int | None) -> str:
    """What to look at first; empty where the code doesn't tell."""
    return "" if code is None else _STEPS.get(_as_shells_say(code), "")
