"""The line that shows the progress of something long, on a terminal."""

from __future__ import annotations

import sys
import time

from megatron_hcp.cli.screen import is_terminal


class ProgressLine:
    """A line on standard error that is rewritten in place, if that is a terminal; otherwise nothing.

    Args:
        first_s: seconds before the first text is shown.
        pause_s: seconds that a text stays at least.
    """

    def __init__(self, first_s: float = 0.0, pause_s: float = 0.0) -> None:
        self._is_shown = sys.stderr is not None and is_terminal(err=True)
        self._pause_s, self._next_s = pause_s, time.monotonic() + first_s
        self._text = ""

    def show(self, text: str) -> None:
        """Replaces the text, unless the one that is shown is too new."""
        if self._is_shown and text != self._text and (now := time.monotonic()) >= self._next_s:
            self._text, self._next_s = text, now + self._pause_s
            sys.stderr.write(f"\r\x1b[K{text}\r")
            sys.stderr.flush()

    def clear(self) -> None:
        """Leaves the line empty."""
        self._next_s = 0.0
        self.show("")
