"""Whether a training hangs: no iteration ended for so long, with more time for the start and for saving."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from megatron_hcp.job.progress import Steps, counted

_ALLOWANCE_S = 1800.0
"""Seconds without a step that starting and saving may take."""
_SAVES = re.compile(rb"\bsav(?:ing|e) (?:a )?checkpoint|\bsaving checkpoint at iteration", re.I)
_SAVED = re.compile(rb"successfully saved checkpoint|\bsaved checkpoint", re.I)
"""megatron/training/checkpointing.py, save_checkpoint: the first and the last line of a save."""
_MOST_BYTES = 4_000_000
"""Read of each log each time; what is older says nothing about now."""


class StallWatch:
    """Reads what the logs of an attempt grow by."""

    def __init__(
        self, logs: Callable[[], list[Path]], stall_s: float, allowance_s: float = _ALLOWANCE_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._logs, self._stall_s, self._now = logs, stall_s, now
        self._allowance_s = max(allowance_s, stall_s)
        self._read: dict[Path, int] = {}
        self._steps = Steps()
        self._is_saving = False
        self._last_step = self._last_line = now()

    def hangs(self) -> str:
        """Why the training counts as hung; "" if it does not."""
        for path in self._logs():
            if data := self._news_of(path):
                self._take(data)
        idle_step, idle_line = self._now() - self._last_step, self._now() - self._last_line
        if not self._steps.of:  # it starts, or does not count its steps: then any line counts
            if idle_line > self._allowance_s:
                return f"training wrote no line for {idle_line:.0f} s: it hangs"
        elif idle_step > (self._allowance_s if self._is_saving else self._stall_s):
            return f"no iteration ended for {idle_step:.0f} s, after {self._steps}: it hangs"
        return ""

    def _take(self, data: bytes) -> None:
        self._last_line = self._now()
        steps = counted(data)
        if steps.last != self._steps.last and steps.of:
            self._steps, self._last_step = steps, self._last_line
        saves, saved = (max((at.start() for at in words.finditer(data)), default=-1) for words in (_SAVES, _SAVED))
        if saves != saved:
            if self._is_saving and saved > saves:
                self._last_step = self._last_line  # a save counts as a step does
            self._is_saving = saves > saved

    def _news_of(self, path: Path) -> bytes:
        try:
            with open(path, "rb") as file:
                end = file.seek(0, 2)
                begin = max(self._read.get(path, 0), end - _MOST_BYTES)
                file.seek(begin)
                self._read[path] = end
                return file.read(end - begin)
        except OSError:
            return b""
