"""What took part in a run beside upstream's own code: stand-ins that were called, and values that were made up."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import FrameType
from typing import NamedTuple


class UpstreamPlace(NamedTuple):
    """A function of upstream's, as a traceback names it."""

    file: str
    function: str


class Record:
    """One run's record. `roots` are the folders of upstream's code."""

    def __init__(self) -> None:
        self.roots: tuple[str, ...] = ()
        self.stand_ins: dict[str, None] = {}
        self.made_up: dict[UpstreamPlace, None] = {}

    def start(self, roots: Iterable[str]) -> None:
        self.roots = tuple(root.rstrip("/") + "/" for root in roots)

    def used(self, name: str) -> None:
        """A stand-in was called in place of what it stands for."""
        self.stand_ins[name] = None

    def read(self) -> None:
        """A value of a device tensor was asked for: one is made up for upstream's innermost function."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not self.is_upstream(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is not None:
            self.made_up[UpstreamPlace(frame.f_code.co_filename, frame.f_code.co_name)] = None

    def is_upstream(self, file: str) -> bool:
        return file.startswith(self.roots)

    def shown(self, file: str) -> str:
        """A file as upstream's repository names it."""
        return next((file[len(root) :] for root in self.roots if file.startswith(root)), file.rpartition("/")[2])


RECORD = Record()
"""Of this process, which runs one rank."""
