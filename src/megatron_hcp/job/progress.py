"""How far a training came: the iterations that its logs count, and the checkpoint that it left."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_COUNTS = (
    rb"\biteration {1,9}(\d{1,9})/ {0,9}(\d{1,9})",  # Megatron-LM, Megatron-Bridge
    rb"={9} Step (\d{1,9})/(\d{1,9})",  # NeMo-RL
    rb"Training Progress:[^\n:]{0,200}?\| (\d{1,9})/(\d{1,9})",  # verl
    rb"global_step/max_steps'?: '?(\d{1,9})/(\d{1,9})",  # ms-swift
)
"""How frameworks count their iterations: the number of one, and of how many."""
_COUNT = re.compile(b"|".join(_COUNTS))
_DONE = re.compile(rb"\[after training is done\]|\bafter training is done\b")
"""megatron/training/training.py, pretrain; megatron/bridge/training/pretrain.py: only a training that did all says it.
"""
_LEFT = re.compile(rb"exiting program (?:after|at) [^\n]{1,80}")
"""The same files: the training ends by its own choice, before its end."""
_TRACKERS = ("latest_checkpointed_iteration.txt", "latest_train_state.pt", "latest_checkpointed_iteration")
"""Where the trainers themselves note their latest checkpoint."""


class Steps(NamedTuple):
    """What logs say: the last iteration, and how many there are (0: not said); whether it says that it is done."""

    last: int = 0
    of: int = 0
    is_done: bool = False
    left: str = ""

    @property
    def finished(self) -> bool | None:
        """Whether all iterations were done; None if nothing says so."""
        if self.of:
            return self.last >= self.of
        return True if self.is_done else False if self.left else None

    def __str__(self) -> str:
        counted = f"iteration {self.last} of {self.of}" if self.of else ""
        return "; ".join(filter(None, (counted, self.left)))


_NOTHING = Steps()


def counted(data: bytes, so_far: Steps = _NOTHING) -> Steps:
    """What a piece of a log adds."""
    last, of = so_far.last, so_far.of
    for match in _COUNT.finditer(data):
        number, total = (int(value) for value in match.groups() if value is not None)
        if (total, number) >= (of, last) or total > of:
            last, of = (max(last, number) if total == of else number), total
    left = _LEFT.search(data)
    said = left[0].decode("utf-8", "replace") if left else so_far.left
    return Steps(last, of, so_far.is_done or bool(_DONE.search(data)), said)


def steps_in(texts: Iterable[bytes]) -> Steps:
    """What all logs of an attempt say."""
    found = _NOTHING
    for text in texts:
        found = counted(text, found)
    return found


_SAVED = re.compile(rb"successfully saved checkpoint", re.I)
"""megatron/training/checkpointing.py, save_checkpoint; Megatron-Bridge says the same."""


def saved_in(texts: Iterable[bytes]) -> bool:
    """Whether logs say that a checkpoint was written, which may lie where no folder shows it."""
    return any(map(_SAVED.search, texts))


def saved_iteration(folder: Path | None) -> int:
    """The iteration of the latest checkpoint, by the trainer's own note; 0 where it says none."""
    try:
        return int((folder / _TRACKERS[0]).read_text(encoding="ascii")[:20]) if folder is not None else 0
    except (OSError, ValueError):
        return 0


def checkpoint_mark(folder: Path | None) -> int:
    """A checksum of what the trainers note about their latest checkpoint; it changes when one is written."""
    mark = 0
    for name in _TRACKERS if folder is not None else ():
        try:
            with open(folder / name, "rb") as file:  # type: ignore[operator]
                mark = zlib.crc32(file.read(100_000), mark + 1)
        except OSError:
            continue
    return mark
