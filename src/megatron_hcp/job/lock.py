"""One job at a time writes a checkpoint folder: a file there names the job, which renews it as long as it runs."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import read_regular
from megatron_hcp.ground.visible import visible

RENEW_S = 10.0
_WATCH_S = 30.0
"""Seconds in which a job that runs renews its claim."""


class CheckpointLock:
    """The claim of a job on its checkpoint folder, in `.hcp-job.json`."""

    def __init__(self, folder: Path, job: str, watch_s: float = _WATCH_S) -> None:
        self.path, self.job, self.watch_s = folder / ".hcp-job.json", job, watch_s

    def take(self) -> str:
        """Claims the folder; "" if it is this job's now, else the job that holds it and still renews its claim.

        Raises:
            OSError: the folder cannot be written.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_name(f".hcp-job-{self.job}.json")
        with suppress(FileNotFoundError):
            new.unlink()  # an attempt's that was killed, or a link of someone who can write here too
        with new.open("x", encoding="utf-8") as file:
            file.write(json.dumps({"job": self.job}) + "\n")
        try:
            for _ in range(2):
                with suppress(FileExistsError):
                    os.link(new, self.path)  # only one of two jobs can
                    return ""
                holder = self._holder()
                if holder == self.job:  # of an earlier attempt
                    return ""
                if self._is_renewed():
                    return holder
                with suppress(FileNotFoundError):
                    self.path.unlink()
            return self._holder()
        finally:
            new.unlink()

    def renew(self) -> None:
        with suppress(OSError):
            os.utime(self.path)

    def release(self) -> None:
        if self._holder() == self.job:
            with suppress(OSError):
                self.path.unlink()

    def _is_renewed(self) -> bool:
        first, ends = self._mark(), time.monotonic() + self.watch_s
        while time.monotonic() < ends:
            if self._mark() != first:
                return first is not None
            time.sleep(min(0.5, self.watch_s / 4))
        return False

    def _mark(self) -> int | None:
        try:
            return self.path.stat().st_mtime_ns
        except OSError:
            return None

    def _holder(self) -> str:
        try:
            return visible(str(json.loads(read_regular(self.path, "a claim", limit=2000))["job"])[:40])
        except (HcpError, ValueError, KeyError, TypeError, RecursionError):
            return "of unknown number"
