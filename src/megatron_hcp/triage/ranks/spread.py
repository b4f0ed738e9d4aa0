"""How far a failure spread: the ranks that wrote the same line, whatever numbers stand in it."""

from __future__ import annotations

import re

from megatron_hcp.triage.line import Line

_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
_LONGEST, _MOST_LINES, _MOST_RANKS = 160, 200, 20_000


class RankSpread:
    """By signature and message without its numbers, the ranks, or srun's tasks, that wrote it."""

    def __init__(self) -> None:
        self._ranks: dict[tuple[str, str], set[int]] = {}

    def add(self, signature: str, line: Line) -> None:
        """Counts the rank of a line that a signature knows; memory stays bounded."""
        who = line.label if line.rank is None else line.rank
        key = _key_of(signature, line)
        if who is None or (key not in self._ranks and len(self._ranks) >= _MOST_LINES):
            return
        ranks = self._ranks.setdefault(key, set())
        if len(ranks) < _MOST_RANKS:
            ranks.add(who)

    def of(self, signature: str, line: Line) -> set[int]:
        """The ranks that wrote a line."""
        return self._ranks.get(_key_of(signature, line), set())


def _key_of(signature: str, line: Line) -> tuple[str, str]:
    return signature, _NUMBERS.sub("#", line.body[:_LONGEST])
