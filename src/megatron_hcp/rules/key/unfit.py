"""Settings whose words don't fit their option, in the revisions of the parser that the launch may be for."""

from __future__ import annotations

import re
from collections.abc import Iterable

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.dialects.frameworks import as_written
from megatron_hcp.launch.fact import Launch, Setting
from megatron_hcp.launch.facts.known_options import table
from megatron_hcp.launch.facts.last_read import BRANCHES, of_package
from megatron_hcp.launch.facts.option_table import OptionRow, OptionTable, option_table
from megatron_hcp.launch.forms.words.fitting import Misfit, excluded_by, misfit
from megatron_hcp.rules.key.options import revision_of_launch
from megatron_hcp.rules.view import View

_PARSES = r"(^|[/.])(pretrain\w*|train_rl)(\.py)?$"
"""Megatron-LM's programs, and those of forks. They may add options; argparse lets none replace one that is there."""
_OTHERS = {"slime": ("slime", "miles"), "ms-swift": ("ms_swift",)}
"""By dialect that has options of its own: the facts that state its version."""


class Unfit(NamedTuple):
    """A setting whose words don't fit. `judged` are the revisions that the launch may be for, oldest first."""

    setting: Setting
    misfit: Misfit
    judged: list[str]
    refusing: list[str]

    @property
    def is_sure(self) -> bool:
        """Whether every revision refuses it."""
        return len(self.refusing) == len(self.judged)

    @property
    def refused_by(self) -> str:
        """The revisions that refuse it, in words."""
        runs: list[list[str]] = []
        for before, revision in zip(["", *self.judged], self.judged):
            if revision in self.refusing:
                if before not in self.refusing:
                    runs.append([])
                runs[-1].append(revision)
        names = [run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
        if len(runs[-1]) > 1 and runs[-1][-1] == self.judged[-1] == BRANCHES[-1]:
            names[-1] = f"{runs[-1][0]} and newer"
        return ", ".join(names)


def is_parsed(v: View) -> bool:
    """Whether a parser that was read gets the launch's words."""
    dialect, reading = v.launch.dialect, v.launch.reading
    if dialect in _OTHERS:
        return reading.form != "yaml"
    if dialect != "mlm" or (v.known("mcore") and revision_of_launch(v) is None):
        return False
    script = v.get("script")
    return re.search(_PARSES, script) is not None if isinstance(script, str) else reading.form != "shell"


def unfit(v: View, *kinds: str) -> list[Unfit]:
    """The settings with a fault of these kinds; first those that every revision refuses."""
    last = _LAST.get("")
    if last is None or last[0] is not v.launch:  # several rules ask in turn about one launch
        last = _LAST[""] = (v.launch, *_faults(v))
    _, keys, faulty = last
    found = []
    for setting, options, judged in faulty:
        if any(fault is not None and fault.kind in kinds for _, fault in judged):
            faults = {revision: fault for row, fault in judged if row.takes != "unknown" for revision in row.revisions}
            among = [revision for revision in _revisions(v, options, keys) if revision in faults]
            refusing = [revision for revision in among if faults[revision] is not None]
            newest = faults[refusing[-1]] if refusing else None
            if newest is not None and newest.kind in kinds:
                found.append(Unfit(setting, newest, among, refusing))
    return sorted(found, key=lambda one: not one.is_sure)


_Faults = list[tuple[Setting, OptionTable, list[tuple[OptionRow, Misfit | None]]]]
_LAST: dict[str, tuple[Launch, frozenset[str], _Faults]] = {}
"""The launch asked about last, and what `_faults` found in it: one entry, which threads replace whole."""


def _faults(v: View) -> tuple[frozenset[str], _Faults]:
    """The keys with words, and the settings that some revision of the parser refuses, each beside its option's rows."""
    reading = v.launch.reading
    settings = [one for one in reading.settings if isinstance(one.value, list)]
    if reading.form == "args-yaml":  # what words a value with blanks becomes, the script that runs the test decides
        settings = [one for one in settings if not any(" " in word for word in one.value)]
    keys = frozenset(setting.key for setting in settings)
    found: _Faults = []
    for setting in settings:
        options = _table(v, setting.key)
        judged = [
            (row, misfit(row.takes, setting.value) or _excluded(v, row.takes, keys))
            for row in options.rows.get(setting.key, ())
        ]
        if any(fault is not None for _, fault in judged):
            found.append((setting, options, judged))
    return keys, found


def may_come(found: Unfit) -> bool:
    """Whether the launch's branch refuses what the other one takes: branches adopt each other's changes."""
    if found.refusing[0] not in BRANCHES:
        return False
    rows = table().rows.get(found.setting.key, ())
    others = (row.takes for row in rows if not set(BRANCHES).isdisjoint(row.revisions))
    return any(misfit(takes, found.setting.value) is None for takes in others)


def _table(v: View, key: str) -> OptionTable:
    """The table that has the option: slime and miles add theirs to Megatron-LM's."""
    dialect = v.launch.dialect
    if dialect in _OTHERS:
        own = option_table(f"framework_options/{dialect}.txt")
        if dialect == "ms-swift" or key in own.rows:
            return own
    return table()


def _revisions(v: View, options: OptionTable, keys: frozenset[str]) -> list[str]:
    """The revisions that the launch may be for: those of the stated version, else all that have its options."""
    if options is table():
        if (revision := revision_of_launch(v)) is not None:
            return [revision]
    else:
        stated = next((name for name in _OTHERS[v.launch.dialect] if v.known(name)), None)
        if stated is not None:
            return _of_version(options.revisions, stated, v.release(stated))
    return list(options.revisions_for(keys))


def _of_version(revisions: Iterable[str], package: str, release: tuple[int, int, int]) -> list[str]:
    """The package's revision of that version, else those of its minor version; none if it wasn't read."""
    head = of_package(package, "main")
    assert head is not None, f"last_read.txt has no main of {package}"
    numbers = {}
    for revision in revisions:
        name, _, version = revision.rpartition("-")
        if name in ("", package):
            numbers[revision] = head.numbers if version == "main" else tuple(map(int, version.split(".")))
    same = [revision for revision, of in numbers.items() if of == release]
    return same or [revision for revision, of in numbers.items() if of[:2] == release[:2]]


def _excluded(v: View, takes: str, keys: frozenset[str]) -> Misfit | None:
    other = next((key for key in excluded_by(takes) if key in keys), None)
    return None if other is None else Misfit("excluded", "", f"it without {as_written(v.launch, other)}")
