"""What became of each word that a launch says about its job."""

from __future__ import annotations

from typing import Literal, NamedTuple

Fate = Literal["carried", "rewritten", "left out", "refused"]


class TakenWord(NamedTuple):
    """A word of a launch, its `FILE:LINE`, and what it became in the job, or why it isn't there."""

    text: str
    where: str
    fate: Fate
    became: str = ""
    key: str = ""
    """The key of the site that carries it."""

    def __str__(self) -> str:
        return f"{self.text} ({self.where})" + (f": {self.became}" if self.became else "")
