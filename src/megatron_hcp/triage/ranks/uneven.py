"""Logs of one job that count to different numbers of steps: the ranks that had fewer left the others waiting."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from megatron_hcp.triage.events import FileEvents
from megatron_hcp.triage.ranks.ended_first import Said
from megatron_hcp.triage.signatures.exceptions import UNEVEN


def uneven(parts: Sequence[FileEvents], first: Said) -> Said | None:
    """`first`, which only says that a rank was lost or waited for, as what explains it: in one log all steps are done,
    and another counts to more. None where the logs count alike, or none is done."""
    counts: dict[Path, tuple[tuple[int, int], ...]] = {entry.path: entry.course for entry in parts if entry.course}
    for course in filter(is_done, counts.values()):
        for further in counts.values():
            if len(further) == len(course) and not is_done(further) and further[-1][1] > course[-1][1]:
                said = (f"{where.name}: {what[-1][0]} of {what[-1][1]}" for where, what in counts.items())
                entry, event = first
                text = ", ".join([*said][:_MOST])
                return entry, event._replace(signature=UNEVEN, role="cause", groups={"text": text})
    return None


_MOST = 8


def is_done(course: tuple[tuple[int, int], ...]) -> bool:
    """Whether a step's line says that no further step is left."""
    return bool(course) and all(number == total for number, total in course)
