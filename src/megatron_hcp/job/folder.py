"""The job's folder, on a file system that all nodes share: what its tasks tell each other, attempt by attempt."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import read_regular, write_whole

_MOST_BYTES = 2_000_000


class JobFolder:
    """`run`: the job's folder. `notes`: what its tasks of this attempt leave there for each other."""

    def __init__(self, run: Path, attempt: int) -> None:
        self.run, self.attempt = run, attempt
        self.notes = run / f".attempt-{attempt}"

    def make(self) -> None:
        for name in ("nodes", "ends", "tested"):
            (self.notes / name).mkdir(parents=True, exist_ok=True)

    def log_file(self, kind: str, node_index: int) -> Path:
        return self.run / f"{kind}-r{self.attempt}-node{node_index}.log"

    def tell(self, name: str, value: Any) -> None:
        """Leaves a note; who reads it finds all of it or nothing."""
        write_whole(self.notes / name, json.dumps(value))

    def told(self, name: str) -> Any:
        """A note, or None if there is none (yet)."""
        try:
            return json.loads(read_regular(self.notes / name, "a note", limit=_MOST_BYTES))
        except (HcpError, ValueError, RecursionError):
            return None

    def is_told(self, name: str) -> bool:
        return (self.notes / name).exists()

    def add_line(self, kind: str, node_index: int, value: Any) -> None:
        """Adds a line to what the tasks of a node have said of one kind."""
        line = (json.dumps(value) + "\n").encode()
        handle = os.open(self.notes / kind / str(node_index), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            os.write(handle, line)
            os.fsync(handle)
        finally:
            os.close(handle)

    def lines(self, kind: str) -> Iterator[Any]:
        """What all tasks have said of one kind so far."""
        try:
            paths = sorted((self.notes / kind).iterdir(), key=lambda path: (len(path.name), path.name))
        except OSError:
            return
        for path in paths:
            try:
                text = read_regular(path, "notes", limit=_MOST_BYTES).decode("utf-8", "replace")
            except HcpError:  # gone
                continue
            for line in text.splitlines():
                try:
                    yield json.loads(line)
                except (ValueError, RecursionError):
                    continue


def wait_until(holds: Callable[[], bool], timeout_s: float, tick_s: float = 0.2) -> bool:
    """Whether it came to hold within that time."""
    ends = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > ends:
            return False
        time.sleep(tick_s)
    return True
