"""Tables of what follows the options of a command line, by revision of the program that parses it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from megatron_hcp.ground.record import NamedTuple


class OptionRow(NamedTuple):
    """Revisions, oldest first, and what follows an option in their parser: see `launch.forms.words.fitting`."""

    revisions: tuple[str, ...]
    takes: str


class OptionTable(NamedTuple):
    """`revisions` are all of the table, oldest first."""

    revisions: tuple[str, ...]
    rows: Mapping[str, Sequence[OptionRow]]
    asked: dict[str, tuple[str, ...]]
    """What `revisions_with` has answered about options of the table."""

    def revisions_with(self, option: str) -> tuple[str, ...]:
        """The revisions that have the option, oldest first."""
        if option not in self.rows:
            return ()
        if option not in self.asked:
            having = {revision for row in self.rows[option] for revision in row.revisions}
            self.asked[option] = tuple(revision for revision in self.revisions if revision in having)
        return self.asked[option]

    def revisions_for(self, options: Iterable[str]) -> tuple[str, ...]:
        """The revisions that have all of the options that any has, oldest first; all revisions if none has them all."""
        having = {revisions for one in options if (revisions := self.revisions_with(one))}
        shared = frozenset(self.revisions).intersection(*having) if having else frozenset()
        return tuple(revision for revision in self.revisions if not shared or revision in shared)


@cache
def option_table(name: str) -> OptionTable:
    """The table of a file beside this one: `known_options.txt`, or `framework_options/<framework>.txt`.

    A line holds ranges of revisions, what follows, and the options: `0.16.0..dev switch: a b`.
    """
    with open(os.path.join(os.path.dirname(__file__), *name.split("/")), encoding="utf-8") as file:
        lines = [line for line in file.read().splitlines() if not line.startswith("#")]
    order = lines[0].split()[1:]
    rows: dict[str, list[OptionRow]] = {}
    for line in lines[1:]:
        head, _, names = line.partition(": ")
        runs, _, takes = head.partition(" ")
        revisions: list[str] = []
        for run in runs.split(","):
            first, _, last = run.partition("..")
            revisions += order[order.index(first) : order.index(last or first) + 1]
        row = OptionRow(tuple(revisions), takes)
        for option in names.split():
            rows.setdefault(option, []).append(row)
    return OptionTable(tuple(order), rows, {})
