"""Progress of a long read, on a terminal."""

from __future__ import annotations

import os
import sys
import time

from megatron_hcp.cli.screen import is_terminal

_PAUSE_S = 0.2


class Progress:
    """Writes `37 %` to standard error while a file is read, if that is a terminal; otherwise nothing."""

    def __init__(self, path: str) -> None:
        try:
            self.size = os.path.getsize(path)
        except (OSError, ValueError):
            self.size = 0
        self.is_shown = is_terminal(err=True) and self.size > 0
        self.said = time.monotonic()

    def __call__(self, read: int) -> None:
        now = time.monotonic()
        if self.is_shown and now - self.said > _PAUSE_S:
            self.said = now
            sys.stderr.write(f"\r{min(100, 100 * read // self.size)} %")
            sys.stderr.flush()

    def close(self) -> None:
        """Clears the line."""
        if self.is_shown:
            sys.stderr.write("\r      \r")
            sys.stderr.flush()
