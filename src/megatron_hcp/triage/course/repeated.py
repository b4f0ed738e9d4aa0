"""Lines that come again: after a training step, which a doubtful one then did not hinder, and on other ranks."""

from __future__ import annotations

import re
from collections.abc import Set

from megatron_hcp.triage.line import Line, without_figures

_MOST_SINCE, _MOST_SURVIVED = 200, 5000


class DoubtfulLines:
    """Those of one attempt in one log; bounded memory. Lines that differ in figures alone are one."""

    def __init__(self) -> None:
        self._since_step: set[str] = set()
        self.survived: set[str] = set()
        """Above a step, or others after which training went on: each without its figures."""

    def add(self, line: Line) -> None:
        """A line for the next step to survive."""
        if not self.was_survived(line) and len(self._since_step) < _MOST_SINCE:
            self._since_step.add(without_figures(line))

    def was_survived(self, line: Line) -> bool:
        """Whether such a line stood above a step too."""
        return without_figures(line) in self.survived

    def step(self) -> None:
        """A training step follows the lines."""
        if self._since_step:
            self.survive(self._since_step)
            self._since_step = set()

    def survive(self, lines: Set[str]) -> None:
        """Training went on after these, each without its figures."""
        if len(self.survived) < _MOST_SURVIVED:
            self.survived |= lines


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
