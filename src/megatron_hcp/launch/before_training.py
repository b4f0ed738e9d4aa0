"""What a script does before it starts the training, as launches hold it: `forms.script.prologue` makes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from megatron_hcp.bash.value import Items


class BeforeTraining(Protocol):
    """What a script does before the training: a job can run it, and then knows the words of the training."""

    @property
    def lines(self) -> tuple[int, int]:
        """Its first line, and the one that starts the training, if it is of the script itself."""

    @property
    def writes(self) -> bool:
        """Whether it may write files."""

    def filled(self, items: Items, is_lost: Sequence[bool]) -> Items:
        """The training's words, with the variables that it sets in those that are lost."""
