"""A training that runs and learns nothing: steps that are all skipped, and losses that are exactly 0."""

from __future__ import annotations

import re
from collections import deque
from typing import NamedTuple

from megatron_hcp.triage.number import number, whole

SKIPPED = b"skipped"
"""Of lines that state how many steps were skipped."""
_SO_FAR = re.compile(rb"\bsteps?[=:]\s?(?P<steps>\d{1,9}), skipped[=:]\s?(?P<skipped>\d{1,9})")
"""DeepSpeed counts from the start."""
_SINCE = re.compile(rb"number of (?:skipped|nan) iterations: {0,9}(?P<count>[1-9]\d{0,8})")
"""Megatron-LM counts since the line before."""
SCALE = re.compile(r"(?i)loss[_ ]scale['\"]?\s{0,3}[:=]\s{0,8}(?P<scale>\d{1,12}(?:\.\d+)?)")
LEAST_SCALE = 16
"""A loss scale so small is of no use any more: the next overflows bring it to its minimum."""
SKIPS = 32
"""So many skipped steps take a loss scale from 2**32, the largest that a framework begins with, to 1."""
_NO_LOSS = re.compile(r"(?i)(?<![a-z_])loss['\"]?\s{0,3}[:=]\s{0,8}['\"]?0(?:\.0(?!\d)|\.0+e[+-]?0+|(?![\d.]))")
"""Exactly 0, as programs write it that do not round: a loss of 0.0000 may only be small."""
_LOSS = re.compile(r"(?i)(?<![a-z])loss['\"]?\s{0,8}[:=|]\s{0,8}['\"]?-?\d")
_SMALL_GRADIENT = re.compile(
    r"(?i)grad(?:ient)?[_ ]norm['\"]?\s{0,3}[:=|]\s{0,8}['\"]?(?:0\.0\d{0,17}[1-9]|[1-9](?:\.\d{1,17})?e-)"
)
"""Less than 0.1, and not 0, beside a loss of 0: such a model has learnt its data by heart."""
_OF_REWARDS = re.compile(r"(?i)reward|advantage|(?<![a-z])kl(?![a-z])|policy|actor|critic")
"""The loss of a policy's step is 0 where all answers are equally good, and at the start."""
_ZEROS = 3
"""So many losses of 0, one after the other and the last ones of a log, are not passed over."""
_FEW = 20
"""So many skipped steps, more than the usual loss scale of 2**16 takes to come down, are not passed over."""


class Idle(NamedTuple):
    """What shows that a training learns nothing: in words, the line, and whether that is a failure."""

    what: str
    line: bytes
    is_failure: bool


class Idling:
    """What the lines of one log tell of skipped steps, and of losses that are 0."""

    def __init__(self) -> None:
        self.skipped = 0
        """Steps skipped since the last line that states a loss."""
        self.last: deque[bytes] = deque(maxlen=_ZEROS)
        """The last lines of steps that state a loss."""
        self._line = b""
        self._so_far: re.Match[bytes] | None = None

    def add(self, line: bytes) -> None:
        """Adds a step's line that states no loss, and how many steps were skipped."""
        if found := _SO_FAR.search(line):
            self._so_far = found
        elif since := [whole(found["count"].decode()) or 0 for found in _SINCE.finditer(line)]:
            self.skipped, self._line = self.skipped + max(since), line

    def said(self) -> Idle | None:
        """What the log shows so far; None where the training learns, or nothing tells."""
        if self._so_far:
            steps, skipped = (whole(self._so_far[name].decode()) or 0 for name in ("steps", "skipped"))
            if skipped >= _FEW and 2 * skipped >= steps:
                return Idle(f"{skipped} of {steps} steps were skipped", self._so_far.string, skipped >= SKIPS)
        scale = SCALE.search(self._line.decode("utf-8", "replace")) if self.skipped else None
        is_spent = scale is not None and (number(scale["scale"]) or 0) <= LEAST_SCALE
        if self.skipped >= (_ZEROS if is_spent else _FEW):
            what = f"the last {self.skipped} steps were skipped, or gave no number"
            return Idle(what, self._line, is_spent or self.skipped >= SKIPS)
        last = [line.decode("utf-8", "replace") for line in self.last]
        if len(last) == _ZEROS and all(map(_is_zero, last)):
            return Idle(f"the loss is 0 in the last {_ZEROS} lines that state one", self.last[-1], False)
        return None


def _is_zero(line: str) -> bool:
    losses = len(_LOSS.findall(line))
    is_nothing = losses > 0 and len(_NO_LOSS.findall(line)) == losses
    return is_nothing and not _SMALL_GRADIENT.search(line) and not _OF_REWARDS.search(line)
