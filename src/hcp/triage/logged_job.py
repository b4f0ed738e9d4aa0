"""What a job says about itself in its log: lines of JSON that the scripts of `hcp render` write."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass
class LoggedJob:
    """What the job's own lines (`hcp-job: {…}`) say about it."""

    id: str | None = None
    start: str | None = None
    nodes: tuple[str, ...] = ()
    gpus_per_node: int | None = None
    attempt: int = 0
    node_of_rank: dict[int, str] = field(default_factory=dict)
    groups: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)

    def read(self, text: str) -> None:
        """Adds what one line's JSON says; a line that is not JSON is skipped."""
        try:
            said: dict[str, Any] = json.loads(text)
        except ValueError:
            return
        event = said.get("event") if isinstance(said, dict) else None
        if event == "start":
            self.id, self.start = str(said.get("job")), said.get("start")
            self.nodes = tuple(map(str, said.get("nodes") or ()))
            self.gpus_per_node, self.attempt = said.get("gpus_per_node"), int(said.get("attempt") or 0)
        elif event == "rank" and isinstance(said.get("rank"), int):
            self.node_of_rank[said["rank"]] = str(said.get("node"))
        elif event == "group":
            self.groups.append((str(said.get("desc")), tuple(said.get("ranks") or ())))
