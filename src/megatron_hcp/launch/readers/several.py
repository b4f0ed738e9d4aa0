"""The launches of one script: which commands count as launches, and how they differ."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from megatron_hcp.ground.place import Location
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.dialects.framework import StartCommand
from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.fact import Dialect, Reading
from megatron_hcp.launch.forms.script.started import Launched

MAX_JUDGED = 64
_MOST = 3
_FIRST = ("parallel", "cp_comm", "seq_length")
"""What is named first if launches differ in many settings."""


_CONVERTS = re.compile(r"convert|hf2|2hf|2mcore|mcore2|(^|/)(preprocess|merge|split)_")
"""Programs other than training that take sizes too: those of the checkpoint that they write."""


class Training(NamedTuple):
    """A training command; `splits`: it says how the model is split."""

    command: StartCommand
    dialect: Dialect
    splits: bool

    @property
    def launched(self) -> Launched:
        return self.command.launched


def judged(found: Sequence[Training]) -> list[Training]:
    """The commands that train: those that split the model, and those whose program is named for it."""
    trains = [one for one in found if _CONVERTS.search(_program(one)) is None and (one.splits or _trains(one))]
    return trains or [one for one in found if one.splits][-1:] or list(found[-1:])


def _program(training: Training) -> str:
    return training.launched.started.script or ""


def _trains(training: Training) -> bool:
    return FRAMEWORKS[training.dialect].is_training(_program(training))


def several(readings: Sequence[Reading], places: Sequence[Location]) -> tuple[Reading, ...]:
    """The distinct readings, each with its number, its line and how it differs."""
    tables = [_said(reading) for reading in readings]
    kept = [place for place, table in enumerate(tables) if table not in tables[:place]]
    if len(kept) == 1:
        again = f"the same launch is started {len(readings)} times"
        return (readings[0]._replace(notes=(again, *readings[0].notes)),)
    named = _differing([tables[place] for place in kept])
    return tuple(
        _numbered(readings[place], number, len(kept), _words(tables[place], named))._replace(line=places[place].line)
        for number, place in enumerate(kept, 1)
    )


def _numbered(reading: Reading, number: int, of: int, differs: str) -> Reading:
    return reading._replace(command=f"launch {number} of {of}: {differs}", nth=(number, of), differs=differs)


def _said(reading: Reading) -> dict[str, Any]:
    """Everything that is read from a launch, by key."""
    facts = {name: fact.value for name, fact in reading.facts.items()}
    return {"unseen": reading.unseen, "dialect": reading.dialect, **reading.unknown, **facts} | {
        setting.key: setting.value for setting in reading.settings
    }


def _differing(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for table in tables for name in table)
    found = [name for name in names if any(table.get(name) != tables[0].get(name) for table in tables)]
    found = [name for name in found if not name.startswith("env.")] or found  # usually what the rest comes from
    first = [name for name in found if any(word in name for word in _FIRST)][:_MOST]
    for name in found:
        if name in first or len(first) == _MOST or _tells_apart(tables, first):
            continue
        first.append(name)
    return first


def _tells_apart(tables: Sequence[Mapping[str, Any]], names: Sequence[str]) -> bool:
    return len({repr([table.get(name) for name in names]) for table in tables}) == len(tables)


def _words(table: Mapping[str, Any], names: Sequence[str]) -> str:
    return ", ".join(f"{name}={_word(table[name])}" if name in table else f"no {name}" for name in names)


def _word(value: Any) -> str:
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
