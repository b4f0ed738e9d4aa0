"""Lines that only may be a failure: one that comes again after a training step was survived."""

from __future__ import annotations

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
