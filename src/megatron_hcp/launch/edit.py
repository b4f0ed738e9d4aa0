"""A reading with some of its keys or facts changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from megatron_hcp.launch.dialects.table import index_of
from megatron_hcp.launch.fact import Fact, Reading, Setting

_PLACED = frozenset(("placement", "start", "nodes", "gpus_per_node", "ntasks_per_node"))
_PREFIXES = ("env.", "sbatch.", "srun.")


def is_plain(name: str) -> bool:
    """Whether a launch sets the fact outside its configuration, by the fact's own name if it has no key.

    The environment, the options of sbatch and srun, and how ranks are placed: `--set` and fixes write them alike.
    """
    return name in _PLACED or name.startswith(_PREFIXES)


class Edit(NamedTuple):
    """A changed reading, and the facts affected by the change."""

    reading: Reading
    touched: frozenset[str] = frozenset()

    def still_assumed(self, assumed: Mapping[str, Fact]) -> dict[str, Fact]:
        """The assumptions that remain after the change, which overrides one about the same fact."""
        return {name: fact for name, fact in assumed.items() if name not in self.touched}


def edit_settings(reading: Reading, edits: Iterable[Setting], removed: Iterable[str] = ()) -> Edit:
    """The reading with settings replaced, under whatever key their fact was written, and without the `removed` keys."""
    edits = tuple(edits)
    index = index_of(reading.dialect, reading.role)
    changed = {edit.key for edit in edits}.union(removed)
    touched = frozenset(index[key].fact for key in changed if key in index)
    same = {key for key, entry in index.items() if entry.fact in touched}
    kept = tuple(s for s in reading.settings if s.key not in same and s.key not in changed)
    facts = {name: fact for name, fact in reading.facts.items() if name not in touched}
    unknown = {name: why for name, why in reading.unknown.items() if name not in touched and name not in same}
    edited = reading._replace(settings=kept + edits, facts=facts, unknown=unknown)
    if reading.dialect == "nemo-rl":
        # Other settings may refer to what is changed, and a switch may disable a whole section.
        from megatron_hcp.launch.dialects.nemo_rl.reading import nemo_rl_reading

        before = (s for s in reading.written or reading.settings if s.key not in same and s.key not in changed)
        new = nemo_rl_reading(reading.target, reading.form, (*before, *edits), unseen=reading.unseen)
        edited = edited._replace(settings=new.settings, written=new.written, facts={**facts, **new.facts})
    return Edit(edited, touched)


def edit_facts(reading: Reading, facts: Mapping[str, Fact]) -> Edit:
    """The reading with facts replaced that have no key (an environment variable, the placement)."""
    changed = {**reading.facts, **facts}
    followed = _following(changed, frozenset(facts))
    unknown = {name: why for name, why in reading.unknown.items() if name not in facts and name not in followed}
    return Edit(reading._replace(facts={**changed, **followed}, unknown=unknown), frozenset(facts))


def _following(facts: Mapping[str, Fact], changed: frozenset[str]) -> dict[str, Fact]:
    """What came from srun's options and is now derived again: the GPUs per node from its tasks, the ranks from both."""
    followed: dict[str, Fact] = {}
    tasks, nodes, gpus, ranks = (
        facts.get(name) for name in ("ntasks_per_node", "nodes", "gpus_per_node", "world_size")
    )
    if tasks is None or not changed & {"ntasks_per_node", "nodes"}:
        return {}
    if gpus is not None and gpus.origin == "derived":
        followed["gpus_per_node"] = gpus._replace(value=tasks.value)
    if ranks is not None and ranks.origin == "derived" and nodes is not None:
        followed["world_size"] = ranks._replace(value=nodes.value * tasks.value)
    return followed
