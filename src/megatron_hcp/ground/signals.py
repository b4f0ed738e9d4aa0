"""Ends a command on a termination signal as an error would: `finally` runs, and started processes are ended."""

from __future__ import annotations

import os
import signal
import sys
import time
from _thread import start_new_thread  # threading takes every command half a millisecond
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ASKS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name))

_SOON_S = 0.01
"""After which the main thread has left the callback."""


@contextmanager
def ends_cleanly() -> Iterator[None]:
    """Inside, the first SIGINT, SIGTERM, SIGHUP or SIGQUIT raises SystemExit(128 + its number) in the main thread.

    Later ones are ignored until the process ends, so that nothing interrupts the cleanup; what the caller ignores
    (`nohup`) stays ignored. Outside the main thread, the only one that gets signals, nothing changes.
    """
    if not _is_main_thread():
        yield
        return
    asked = 0

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if not asked:
            asked = number
            raise SystemExit(128 + number)

    def again(unraisable: sys.UnraisableHookArgs) -> None:
        """Python drops what is raised in a callback, as in those of its import locks: the signal is sent once more."""
        nonlocal asked
        if asked and isinstance(unraisable.exc_value, SystemExit):
            number, asked = asked, 0  # before the signal can come again, however slow this machine is
            start_new_thread(_send_soon, (number,))
        else:
            shown(unraisable)

    shown, sys.unraisablehook = sys.unraisablehook, again
    before = {number: signal.getsignal(number) for number in _ASKS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield
    finally:
        sys.unraisablehook = shown
        for number, handler in before.items():
            if signal.getsignal(number) is end:
                restored = handler if handler is not None else signal.SIG_DFL
                # As it ends, Python gives up its own handlers, but not what the system ignores.
                signal.signal(number, signal.SIG_IGN if asked else restored)


def _is_main_thread() -> bool:
    threading = sys.modules.get("threading")  # where nothing has loaded it, there is one thread
    return threading is None or threading.current_thread() is threading.main_thread()


def _send_soon(number: int) -> None:
    time.sleep(_SOON_S)
    os.kill(os.getpid(), number)


def end_at_once() -> None:
    """From now on, a signal that asks for the end ends the process in its handler, with 128 + its number.

    For a server whose library waits for its threads where it should end: it holds nothing that would have to be cleaned
    up. What the caller ignores stays ignored.
    """

    def end(number: int, frame: FrameType | None) -> None:
        os._exit(128 + number)

    for number in _ASKS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
