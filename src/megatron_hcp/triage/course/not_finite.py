"""Losses and gradient norms that are no numbers: since which step, how often, and whether the training got over it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from megatron_hcp.triage.course.idle import LEAST_SCALE, SCALE, SKIPS
from megatron_hcp.triage.course.kinds import METRIC, place_of
from megatron_hcp.triage.scan import Hit

_STEP_SKIPPED = re.compile(r"(?i)skipped[_ ]iterations\D{1,8}[1-9]|\bskip(?:ped|ping)\b.{0,20}\bstep")
_NORMS = 3
"""So many steps in a row without a gradient norm; one or two also stand in logs of trainings that went on."""
_NO_LOSS = re.compile(r"(?i)(?<![a-z_])loss['\"]?\s{0,3}[:=]\s{0,8}['\"]?0(?:\.0*)?(?![\d.])")
"""The Trainer writes the loss of a step whose loss is no number as 0 (`logging_nan_inf_filter`)."""
_BETWEEN = 3
"""So many good steps between two bad ones show that the training got over it."""


AND_LOSS, _LOSS = "gradient norm, and then the loss,", "lL"
_AROUND, _NOTES = 16384, 3


class Said(NamedTuple):
    """What a line says: the metric, its value, and whether a loss scaler has skipped the step, as it should."""

    metric: str
    value: str
    is_skipped: bool
    is_zero: bool
    """Whether the loss beside it is 0."""
    place: str
    """Where in the training: `step 12`; empty where the line does not say."""


def said(body: str) -> Said | None:
    """The loss or gradient norm of a line that is no number; None where there is none."""
    found = None
    for match in METRIC.finditer(body):
        if found is None or match["name"][0] in _LOSS:
            found = match
    if found is None:
        return None
    scale = SCALE.search(body)
    is_skipped = bool(_STEP_SKIPPED.search(body)) or (scale is not None and float(scale["scale"]) > LEAST_SCALE)
    name = "loss" if found["name"][0] in _LOSS else "gradient norm"
    return Said(name, found["value"].lower(), is_skipped, bool(_NO_LOSS.search(body)), place_of(body))


@dataclass
class NotFinite:
    """The steps of a log, one after the other, whose loss or gradient norm is no number."""

    groups: dict[str, str] = field(default_factory=dict)
    """Of the present row of them, as those of a signature's pattern; they go on changing while it grows."""
    row: Hit | None = None
    """The first line of the present row, with little around it; None where numbers have come since."""
    count: int = 0
    finite: int = 0
    """Lines that state a number, since the last bad one."""
    since: str = ""
    is_skipped: bool = True
    """Whether a loss scaler has skipped all steps of the row."""
    over: list[tuple[int, str]] = field(default_factory=list)
    """Of the first rows that ended: the number of the first line, and what was said."""

    def passed(self, finite: int) -> bool:
        """Adds lines that state a number; whether the row ends with them."""
        self.finite += finite
        if self.row is None or self.finite < _BETWEEN:
            return False
        self._keep("the training got over it")
        self.row = None
        return True

    def add(self, found: Said, hit: Hit) -> bool:
        """Adds a bad step; whether the row is a failure with it."""
        if self.row is None:
            at = min(hit.at, _AROUND)
            self.row = hit._replace(chunk=hit.chunk[hit.at - at : hit.at + _AROUND], at=at)
            self.groups = {"name": found.metric, "value": found.value, "at": ""}
            self.since = found.place and f" from {found.place} on"
            self.count, self.is_skipped = 0, True
        elif found.metric == "loss" != self.groups["name"]:
            self.groups["name"] = AND_LOSS
        self.count, self.finite = self.count + 1, 0
        self.is_skipped = self.is_skipped and found.is_skipped
        self.groups["at"] = f"{self.since}, {'once' if self.count == 1 else f'{self.count} times'}"
        most = 1 if found.metric == "loss" or found.is_zero else _NORMS
        return self.count >= (SKIPS if found.is_skipped else most)

    def notes(self) -> list[tuple[int, str]]:
        """What was seen and is no failure: line and text, with what to do; steps that a loss scaler skips are none."""
        if self.row is not None:
            self._keep("too few to tell: look at the steps that follow, and at the loss")
        return self.over

    def _keep(self, why: str) -> None:
        if self.row is not None and not self.is_skipped and len(self.over) < _NOTES:
            text = f"the {self.groups['name']} is not a number ({self.groups['value']}){self.groups['at']}: {why}"
            self.over.append((self.row.number, text))
