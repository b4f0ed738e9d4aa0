"""A reading with some of its keys or facts changed: by a fix, by further words, or by `--set`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.dialects.table import FACTS, default_of, index_of
from megatron_hcp.launch.fact import Fact, Reading, Setting
from megatron_hcp.launch.facts.spec import UNKNOWN

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
    framework = FRAMEWORKS[reading.dialect]
    if framework.refers and framework.read_again is not None:
        before = (s for s in reading.written or reading.settings if s.key not in same and s.key not in changed)
        new = framework.read_again(reading, (*before, *edits))
        edited = edited._replace(settings=new.settings, written=new.written, facts={**facts, **new.facts})
    return Edit(edited, touched)


def edit_facts(reading: Reading, facts: Mapping[str, Fact]) -> Edit:
    """The reading with facts replaced that have no key (an environment variable, the placement)."""
    changed = {**reading.facts, **facts}
    followed = {**_following(changed, frozenset(facts)), **FRAMEWORKS[reading.dialect].follow(changed, facts)}
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


def read_again(reading: Reading, settings: Sequence[Setting]) -> Reading:
    """A reading of dotted keys with all its settings replaced, and what follows from them recomputed."""
    again = FRAMEWORKS[reading.dialect].read_again
    assert again is not None
    new = again(reading, settings)
    ours = {name: fact for name, fact in reading.facts.items() if name not in new.facts or name == "start"}
    # What was unknown stays unknown (its setting is gone), unless a new setting of the same key gives it.
    given = {setting.key for setting in new.settings}
    unknown = {key: why for key, why in reading.unknown.items() if key not in given}
    return reading._replace(
        settings=new.settings,
        facts={**new.facts, **ours},
        unknown={**unknown, **new.unknown},
        complete=new.complete,
        role=new.role,
        others=new.others,
        written=new.written,
        notes=tuple(dict.fromkeys((*reading.notes, *new.notes))),
    )


def apply_sets(reading: Reading, texts: Sequence[str]) -> Edit:
    """The reading with `--set KEY=VALUE` applied in order: keys of its dialect, `env.NAME`, or the placement of ranks.

    Flags may be written as on the command line, with dashes. VALUE null removes a flag.

    Raises:
        HcpError: a text isn't KEY=VALUE, or gives an impossible placement.
    """
    from megatron_hcp.launch.forms.words.hydra import hydra_value
    from megatron_hcp.launch.forms.words.settings import flat_settings

    index = index_of(reading.dialect, reading.role)
    facts: dict[str, Fact] = {}
    settings: list[Setting] = []
    removed: list[str] = []
    for text in texts:
        key, value = _key_and_value(text)
        if is_plain(key) and key not in index:
            facts[key] = _plain_fact(key, value, text)
        elif not FRAMEWORKS[reading.dialect].is_command_line:
            settings += flat_settings(key, hydra_value(value), None)
        elif value == "null":
            name = key.replace("-", "_")
            removed.append(name)
            if reading.unseen is not None and name in index:
                # Words that can't be read could still set it: this states that they don't.
                fact = index[name].fact
                default = default_of(FACTS[fact], reading.dialect)
                facts[fact] = Fact(None if default is UNKNOWN else default, "launch")
        else:
            settings.append(Setting(key.replace("-", "_"), _words(value, FRAMEWORKS[reading.dialect].negates)))
    edit = edit_settings(reading, settings, removed)
    if FRAMEWORKS[reading.dialect].several_models and settings:
        edit = edit._replace(reading=read_again(reading, [*reading.settings, *settings]))
    more = edit_facts(edit.reading, facts)
    return more._replace(touched=edit.touched | more.touched)


def _words(value: str, has_switches: bool) -> list[str] | bool:
    """The words after an option; for Megatron-LM's switches none if it is on, and False if it is left out."""
    if has_switches and value.lower() in ("true", "false"):
        return [] if value.lower() == "true" else False
    return value.split()


def _plain_fact(name: str, value: str, text: str) -> Fact:
    if name.startswith(("sbatch.", "srun.")):
        return Fact(None if value == "null" else value, "launch")
    from megatron_hcp.launch.options import stated_fact

    return stated_fact(name, value, "launch", text)


def _key_and_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    key = key.strip().lstrip("+").removeprefix("--")
    if not equals or not key or any(character.isspace() for character in key):
        raise HcpError(f"found --set {text[:60]!r}", wanted="KEY=VALUE", do="write the key as the launch does")
    return key, value.strip()
