"""What took part in a run beside upstream's own code: stand-ins that were called, and values that were made up."""

from __future__ import annotations

import os
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
        self.of_others: set[UpstreamPlace] = set()
        """Functions that were given what other ranks sent: this rank's own values."""
        self.is_model_read = False
        """Whether a model's config.json was opened: before that, nothing of a model takes part."""
        self.is_model_made = False
        """Whether one that was opened is made, or its class: then the model is not wholly the launch's."""

    def start(self, roots: Iterable[str]) -> None:
        self.roots = tuple(root.rstrip("/") + "/" for root in roots)

    def watch_models(self, cache: str) -> None:
        """Notices from here on that a model's config.json is opened in the cache."""

        def opened(event: str, args: tuple[object, ...]) -> None:
            file = str(args[0]) if event == "open" and cache else ""
            if file.startswith(cache) and file.endswith("config.json"):
                self.is_model_read = True
                if os.path.realpath(file).startswith(os.path.realpath(cache)):  # the user's are links
                    self.is_model_made = True
                    self.used(f"{file[len(cache) :].split('/')[1]}/config.json")

        sys.addaudithook(opened)

    def used(self, name: str) -> None:
        """A stand-in was called in place of what it stands for."""
        self.stand_ins[name] = None

    def read(self) -> None:
        """A value of a device tensor was asked for: one is made up for upstream's innermost function."""
        if (place := self._place()) is not None:
            self.made_up[place] = None

    def received(self) -> None:
        """Upstream's innermost function is given what another rank would send."""
        if (place := self._place()) is not None:
            self.of_others.add(place)

    def _place(self) -> UpstreamPlace | None:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and not self.is_upstream(frame.f_code.co_filename):
            frame = frame.f_back
        return frame and UpstreamPlace(frame.f_code.co_filename, frame.f_code.co_name)

    def is_upstream(self, file: str) -> bool:
        return file.startswith(self.roots)

    def shown(self, file: str) -> str:
        """A file as upstream's repository names it."""
        return next((file[len(root) :] for root in self.roots if file.startswith(root)), file.rpartition("/")[2])


RECORD = Record()
"""Of this process, which runs one rank."""
