"""The limits of a process that runs upstream's code."""

from __future__ import annotations

import resource
import signal


def limit(seconds: int, memory: int) -> None:
    """From here on, this process has so many bytes of memory, and ends after so many seconds."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)
