"""Looks at the logs of a running job again and again, until they show that it failed or ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import TypeVar

_PAUSE_S = 2.0
_SHARE = 10
"""A look that takes long is made as much more seldom: at most so small a part of the time goes into looking."""
SETTLED_S = 10.0
"""So long the logs must show the same end: a line that says error may be one that the program handles."""
_T = TypeVar("_T")


def follow(
    look: Callable[[], _T],
    state_of: Callable[[], object],
    end_of: Callable[[_T], Hashable | None],
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> _T:
    """What the last look found: the job's end, as it stood there for `SETTLED_S` seconds.

    Args:
        look: reads all logs.
        state_of: what changes with the logs; they are read only when it did.
        end_of: what ended the job, by what a look found; None while it runs.
        now: seconds of a clock.
        sleep: waits so many seconds.
    """
    state: object = None
    end: Hashable | None = None
    since = took = 0.0
    while True:
        if (changed := state_of()) != state:
            begun = now()
            state, found = changed, look()
            took = now() - begun
            if (last := end_of(found)) != end:
                end, since = last, now()
        if end is not None and now() - since >= SETTLED_S:
            return found
        sleep(max(_PAUSE_S, _SHARE * took))
