"""Whether a program survived an exception, or only passed on that of another one."""

from __future__ import annotations

import re
from itertools import islice

from megatron_hcp.triage.line import Line, read_line
from megatron_hcp.triage.raised.frames import frames_above
from megatron_hcp.triage.raised.tracebacks import HEAD_TEXT, NEAR, line_below, lines_below
from megatron_hcp.triage.scan import Hit
from megatron_hcp.triage.signatures.row import Role

_LOOKED_AT = 40
_FURTHER = 1 << 16
"""Bytes below an exception in which its process may be seen to go on."""
_OF_TRACEBACK = re.compile(r"(?:[\w.]{1,80}: )?Traceback \(most recent|[\w.]{1,80}(?:Error|Exception)\b|\[Errno ")
_CLEANS_UP = re.compile(r", in _run_finalizers$|multiprocessing/resource_tracker\.py\", line")
_IGNORED = (
    "Exception ignored in",
    "Exception ignored while",
    "--- Logging error ---",
    "Error in atexit._run_exitfuncs",
    "NVML Error: ",
)


_AGAIN = re.compile(
    r"(?i)\b(?:(?:will be|is|are) (?:retried|left out|skipped|ignored|disabled|not used)|tr(?:y|ies|ying) again|"
    r"will retry|retries|retrying|falls? back|falling back|goes on|going on|continu(?:es|ing) without)\b"
)
"""What a program says of an error that it goes on after: in a line that announces its traceback, or right below it."""
_CHAINS = ("The above exception was the direct cause", "During handling of the above exception")
_MOST_CHAINED = 8
RAISED: tuple[Role, ...] = ("cause", "general")
"""Roles of lines that say what happened in a process."""
_OF_ANOTHER = re.compile(r"\s*Traceback of where the remote call failed")
_ANNOUNCES = re.compile(r"(?::|-{3}|\"{3})$")
_OF_CELL = re.compile(r"[\w.]{1,100}\s{2,80}Traceback \(most recent call last\)$")
"""IPython's head of a traceback."""


def passes_on(hit: Hit, line: Line) -> bool:
    """Whether an exception only carries that of another process or cell: its text begins below its name, and holds a
    traceback that a line announces (papermill, torch.multiprocessing, concurrent.futures); or monarch prints it."""
    below = line_below(hit)
    if below is not None and _OF_ANOTHER.match(read_line(below.line).body):
        return True
    if not re.search(r"\w:$", line.body):
        return False
    above = ""
    for _, text in islice(lines_below(hit), NEAR):
        if text.writer != line.writer:
            continue
        if _OF_CELL.match(text.body) or (text.body.startswith(HEAD_TEXT) and _ANNOUNCES.search(above)):
            return True
        above = text.body
    return False


_OF_LIBRARY = re.compile(r"(?:^|/)python3\.\d{1,2}/(?!(?:site|dist)-packages)")
_LOOKED_UP = re.compile(
    r"^(?:[\w.]{1,80}\.)?(?:(?:KeyError|IndexError|AttributeError|StopIteration|Empty|CancelledError)\b|"
    r"HTTPError: HTTP Error 30\d)"  # a redirection, which urllib follows
)


_NOT_REACHED = re.compile(
    r"^(?:[\w.]{1,80}\.)?(?:Connection|NewConnection|ConnectTimeout|MaxRetry|NameResolution|SSL|URL|gaierror|timeout)"
    r"\w{0,20}: "
)
"""What the layers below a client say of a server that does not answer; the client says which server it is."""


def was_caught(hit: Hit, line: Line) -> bool:
    """Whether a look-up failed as the program expected: what it did then raised another exception; or the program put
    an exception of its own (`raise … from`) in place of one of Python's library, which knows less of what is wrong;
    or a client told what it met when a server did not answer."""
    own = (other.body for _, other in lines_below(hit) if other.writer == line.writer and other.body.strip())
    below = next(own, "")
    is_chained = below.startswith(_CHAINS)
    if is_chained and _NOT_REACHED.match(line.body):
        return True
    if below.startswith(_CHAINS[0]):
        frames = frames_above(hit.before(), line)
        return bool(frames) and _OF_LIBRARY.search(frames[0].file) is not None
    return is_chained and _LOOKED_UP.match(line.body) is not None


def is_of_thread(hit: Hit) -> bool:
    """Whether the lines above an exception say that it ended a thread, and not its process."""
    return is_ignored(hit.before(), ("Exception in thread ",))


def is_ignored(before: str, words: tuple[str, ...] = _IGNORED) -> bool:
    """Whether the lines above an exception say that it was survived.

    Python goes on after `Exception ignored in: …`, after an error of its logging, and after those of what it calls at
    the end. nvidia-resiliency-ext logs that it found no NVML (`NVML Error: …`, shared_utils/health_check.py). Ranks
    write such blocks into one another: the exception is survived where as many blocks are said to be as begin.
    """
    begun = survived = 0
    for raw in reversed(before[-8192:].splitlines()[-60:]):
        body = read_line(raw.encode("utf-8", "replace")).body
        begun += "Traceback (most recent" in body
        if body.startswith(words) or _CLEANS_UP.search(body):
            survived += 1
            if survived >= begun:
                return True
        elif not body.startswith((" ", "\t")) and not _OF_TRACEBACK.match(body):
            return False
    return False


def is_outlived(hit: Hit, line: Line, role: Role) -> bool:
    """Whether a program went on after an exception, as it says in the line below the last one of its chain. What a
    rank lost counts no more than that where a client met it, which then says what it had asked for."""
    if role == "effect" and (was_caught(hit, line) or _is_announced(hit, line)):
        return True
    return (role in RAISED and is_ignored(hit.before())) or (role in (*RAISED, "effect") and _is_followed(hit, line))


def may_be_outlived(hit: Hit, line: Line, role: Role) -> bool:
    """Whether an exception may not have ended its program: the line that announces its traceback (it ends in a colon)
    says so, it was caught, or it is another's."""
    if role in RAISED and _is_announced(hit, line):
        return True
    return role == "general" and (was_caught(hit, line) or passes_on(hit, line))


def _is_announced(hit: Hit, line: Line) -> bool:
    for raw in reversed(hit.before()[-8192:].splitlines()[-60:]):
        above = read_line(raw.encode("utf-8", "replace"))
        body = above.body
        if above.writer != line.writer or not body.strip():
            continue
        if body.rstrip().endswith(":") and _AGAIN.search(body):
            return True
        if not body.startswith((" ", "\t", "ray::")) and not body.startswith(HEAD_TEXT):
            return False
    return False


def _is_followed(hit: Hit, line: Line) -> bool:
    chained, is_within = 0, False
    for _, below in lines_below(hit):
        body = below.body
        if below.writer[:2] != line.writer[:2] or not body.strip():
            continue
        if body.startswith(_CHAINS) and chained < _MOST_CHAINED:
            chained, is_within = chained + 1, True
        elif is_within and not body.startswith((" ", "\t", HEAD_TEXT)):
            is_within = False  # the next exception of the chain
        elif not is_within:
            return not body.startswith((" ", "\t")) and _AGAIN.search(body) is not None
    return False


_LOGGED = ("ERROR", "WARNING", "INFO")
RAYS_PROCESS = re.compile(rb"[^()\n]{0,20}\((?:[\w.\[\]=]{1,100} )?(pid=\d{1,10}[,)])")
_GOES_ON = 3
"""So many lines that a process writes after its exception show that it did not end."""


def was_logged(hit: Hit, line: Line) -> bool:
    """Whether a logger wrote the traceback of a line's exception: the program caught it."""
    head = hit.before().rpartition(HEAD_TEXT)[0].rpartition("\n")[2]
    return not line.level and read_line(f"{head[-200:]}x".encode("utf-8", "replace")).level in _LOGGED


_AFTERMATH = re.compile(
    r"(?i)fail|exit|error|exception|signal|warn|kill|abort|terminat|shut ?down|stack ?trace|core dump|"
    r"^(?:Set the environment variable|frame #|#\d|@ |\W*$)"
)
"""What a process still writes that ends."""


def goes_on(hit: Hit) -> bool:
    """Whether the process of Ray that wrote a line writes on, and not about the same exception alone."""
    process = RAYS_PROCESS.match(hit.line)
    if process is None:
        return False
    below = hit.chunk[hit.at + len(hit.line) : hit.at + _FURTHER].split(b"\n")
    own = islice((raw for raw in below if process[1] in raw[:120]), _LOOKED_AT)
    bodies = (read_line(raw).body for raw in own)
    said = (
        body
        for body in bodies
        if not (body.startswith((" ", "\t")) or _OF_TRACEBACK.match(body) or _AFTERMATH.search(body))
    )
    return len(tuple(islice(said, _GOES_ON))) == _GOES_ON
