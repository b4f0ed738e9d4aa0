"""Who came to a barrier of torch's store, by what those say that waited at it in vain."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby

from megatron_hcp.triage.collective.collectives import Waited
from megatron_hcp.triage.number import whole

TOKENS = (b"store based barrier on rank",)
_MOST = 200_000
_BARRIER = re.compile(
    r"store based barrier on rank: ?(?P<rank>\d{1,7})(?:(?!store based).){0,200}?world_size=(?P<world>\d{1,7}), "
    r"(?:worker_count|num_workers_joined)=(?P<came>\d{1,7})(?:, timeout=(?P<hours>\d{1,3}):(?P<minutes>\d\d):"
    r"(?P<seconds>\d\d))?"
)
"""`Timed out initializing process group in store based barrier on rank: 94, for key: K (world_size=256,
worker_count=247, timeout=0:30:00)`: torch, distributed_c10d.py, _store_based_barrier."""


@dataclass
class Arrivals:
    """What was read so far."""

    world: int = 0
    came: int = 0
    seconds: int | None = None
    waited: set[int] = field(default_factory=set)

    def read(self, text: str) -> None:
        """Adds what a line says."""
        if len(self.waited) >= _MOST or not (said := _BARRIER.search(text)):
            return
        numbers = {name: whole(value) for name, value in said.groupdict().items()}
        self.world, self.came = numbers["world"] or 0, max(self.came, numbers["came"] or 0)
        self.waited.add(numbers["rank"] or 0)
        if numbers["seconds"] is not None:
            self.seconds = 3600 * (numbers["hours"] or 0) + 60 * (numbers["minutes"] or 0) + numbers["seconds"]

    def is_sure(self, barrier: Waited) -> bool:
        """Whether each rank that said nothing never came."""
        return len(barrier.missing) == self.world - self.came

    def barrier(self) -> Waited | None:
        """The barrier, and the ranks that said nothing of it; None of these where the logs are of some ranks alone."""
        if not 0 < self.came < self.world <= _MOST:
            return None
        silent = set(range(self.world)) - self.waited
        absent = self.world - self.came
        missing = tuple(sorted(silent)) if len(silent) <= absent + max(1, absent // 4) else ()
        text = f"{self.came} of {self.world} ranks came"
        if missing:
            text += f"; {ranges_text(missing)} never said that they waited" + (
                f", of which {len(missing) - absent} came" if len(missing) > absent else ""
            )
        return Waited("store based barrier", None, None, self.seconds, tuple(sorted(self.waited)), missing, said=text)


def ranges_text(ranks: Iterable[int]) -> str:
    """Ranks for a reader, where most follow each other.

    >>> ranges_text((5, 232, 233, 234))
    'ranks 5 and 232-234'
    """
    runs = [[rank for _, rank in run] for _, run in groupby(enumerate(ranks), key=lambda item: item[1] - item[0])]
    *first, last = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return "ranks " + (f"{', '.join(first)} and {last}" if first else last)
