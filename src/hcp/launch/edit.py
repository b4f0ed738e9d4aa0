"""A reading as it would be with some of its keys or facts changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hcp.launch.fact import Fact, Reading, Setting
from hcp.launch.facts.table import index_of


class Edit(NamedTuple):
    """A reading that was changed, and the facts that the change is about."""

    reading: Reading
    touched: frozenset[str] = frozenset()

    def still_assumed(self, assumed: Mapping[str, Fact]) -> dict[str, Fact]:
        """The assumptions that the change leaves standing: it wins over one about the same fact."""
        return {name: fact for name, fact in assumed.items() if name not in self.touched}


def edit_settings(reading: Reading, edits: Iterable[Setting], removed: Iterable[str] = ()) -> Edit:
    """The reading with settings replaced, under whatever key their fact was written, and `removed` keys left out."""
    edits = tuple(edits)
    index = index_of(reading.dialect, reading.role)
    changed = {edit.key for edit in edits}.union(removed)
    touched = frozenset(index[key].fact for key in changed if key in index)
    same = {key for key, entry in index.items() if entry.fact in touched}
    kept = tuple(s for s in reading.settings if s.key not in same and s.key not in changed)
    facts = {name: fact for name, fact in reading.facts.items() if name not in touched}
    unknown = {name: why for name, why in reading.unknown.items() if name not in touched and name not in same}
    return Edit(reading._replace(settings=kept + edits, facts=facts, unknown=unknown), touched)


def edit_facts(reading: Reading, facts: Mapping[str, Fact]) -> Edit:
    """The reading with facts that no key holds (an environment variable, the placement) replaced."""
    return Edit(reading._replace(facts={**reading.facts, **facts}), frozenset(facts))
