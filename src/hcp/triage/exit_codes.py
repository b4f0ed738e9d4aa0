"""How a process ended: its exit code, as launchers report it, and what that says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from signal import Signals

from hcp.triage.number import whole

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
}
_CODES = {
    1: "an error (read the traceback)",
    2: "wrong arguments",
    9: "killed (SIGKILL): usually memory of the node",
    16: "asked to resume so that a suspicious result can be told from a faulty machine",
    17: "a result failed its validation: suspect the machine",
    126: "the program may not be executed",
    127: "the program was not found",
    134: "aborted (SIGABRT)",
    137: "killed (SIGKILL): usually memory of the node",
    139: "a segmentation fault",
    143: "terminated (SIGTERM)",
}

_GROUPS = ("code", "code2", "code3", "code4")
"""Groups of a launcher's patterns that hold an exit code."""
_SIGNAL_GROUPS = ("signal", "signal2", "signal3")
"""Groups that hold a signal: its number, or its name."""
CAME_TO_DIE = frozenset((-4, -7, -8, -9, -11, 9, 132, 135, 136, 137, 139))
"""Died of a signal that nobody sends to end a job in order: killed, or a crash."""
WAS_ENDED = frozenset((-2, -15, 130, 143))
"""Interrupted or terminated: somebody asked it to end."""
ABORTED = frozenset((-6, 134))
"""Ended by its own abort: so does a rank that waited in vain, and so do others that failed."""
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


def _number(signal: str) -> int | None:
    """The number of a signal that is given as a number or as a name (`SIGKILL`)."""
    return Signals[signal].value if signal in Signals.__members__ else whole(signal)


def explain_code(code: int) -> str:
    """An exit code in words: `-9` and `137` are a signal's."""
    known = _CODES.get(128 - code if code < 0 else code)
    return f"exit code {code}: {known}" if known else f"exit code {code}"
