"""Ends a step's processes if `hcp` itself is killed. A separate program: `python -I -S guard.py MARK FOLDER`.

`hcp` holds the other end of its standard input, and ends this program when a step is over. If the input ends first,
`hcp` was killed without a chance to clean up (SIGKILL, out of memory). It imports little, as it starts with every step.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

VARIABLE = "HCP_STEPS"
"""A variable in the environment of a step and its children: the marks of the enclosing steps, each with a colon."""
_GRACE_S = 5.0


def marked(mark: str) -> list[int]:
    """The processes that have the mark in their environment; none are found without /proc."""
    wanted = mark.encode()
    found = []
    try:
        entries = os.listdir("/proc")
    except OSError:
        return []
    for entry in entries:
        if entry.isdecimal():
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    if wanted in file.read():
                        found.append(int(entry))
            except OSError:  # it has ended, or belongs to another user
                continue
    return found


def end_marked(mark: str) -> None:
    """Ends the processes with the mark: first SIGTERM, then SIGKILL."""
    number, end = signal.SIGTERM, time.monotonic() + _GRACE_S
    asked: set[int] = set()
    while pids := marked(mark):
        if time.monotonic() > end:
            number, asked = signal.SIGKILL, set()
        for pid in pids:
            if pid not in asked:
                asked.add(pid)
                with suppress(OSError):
                    os.kill(pid, number)
        time.sleep(0.05)


def main(mark: str, folder: str) -> None:
    """Waits for the end of standard input, then ends the step and removes its folder."""
    leader = sys.stdin.readline().strip()
    sys.stdin.read()
    if os.path.isdir("/proc/self"):
        end_marked(mark)
    elif leader:
        os.killpg(int(leader), signal.SIGKILL)
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
