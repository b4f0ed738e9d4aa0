"""What hcp knows of a framework: one `Framework`, which is asked instead of comparing names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.dialects.values import Facts
from megatron_hcp.launch.fact import Acceptance, Beside, Dialect, Fact, Reading, Setting
from megatron_hcp.launch.facts.known_keys import section
from megatron_hcp.launch.facts.spec import FactSpec
from megatron_hcp.launch.facts.topics import KeysOf

if TYPE_CHECKING:
    from megatron_hcp.bash.value import Items
    from megatron_hcp.launch.forms.script.facts import Facts as CommandFacts
    from megatron_hcp.launch.forms.script.files import Files
    from megatron_hcp.launch.forms.script.started import Launched
    from megatron_hcp.launch.forms.words.settings import WordList
    from megatron_hcp.launch.forms.yaml.settings import YamlDoc

_NOTHING: Mapping[str, Any] = MappingProxyType({})

SINGLE_WORDS = frozenset(("mixed_precision", "model_engine"))
"""Sections that may also be a single word: the name of a recipe or a config group."""


def is_declared(known: Callable[[str], tuple[frozenset[str], str]], key: str) -> bool:
    """Whether sources declare a key, by a framework's `known`; not the `_target_`, `_args_`, … of a dumped config."""
    names, name = known(key)
    return not key.rpartition(".")[2].startswith("_") and name in names


def never(*_: object) -> bool:
    """The answer of a framework to which a question doesn't apply."""
    return False


def always(_: object) -> bool:
    return True


def nothing(_: object) -> None:
    """No answer, by a framework to which a question doesn't apply."""


def nothing_open(*_: object) -> Mapping[str, str]:
    return _NOTHING


def dotted(key: str) -> str:
    """A key as the launch has it."""
    return key


def with_dashes(key: str) -> str:
    """A key as an option of Megatron-LM's command line."""
    return f"--{key.replace('_', '-')}"


def plain_nodes(facts: Mapping[str, Fact], count: int) -> tuple[str, int]:
    """The nodes of the job, which whoever starts it sets."""
    return "nodes", count


def none_follows(facts: Mapping[str, Fact], changed: Collection[str]) -> Mapping[str, Fact]:
    """Nothing is read from variables."""
    return _NOTHING


class StartCommand(NamedTuple):
    """A command of a script that may start a training: the program, and the names of its options and overrides."""

    launched: Launched
    names: Collection[str]
    """Of options, with leading dashes, and of overrides."""
    by_keys: Dialect | None
    """What its overrides tell."""
    megatrons: Collection[str]
    """The options of Megatron-LM's command line that set a fact."""

    @property
    def script(self) -> str:
        """The script or module that it starts; "" = not known."""
        return self.launched.started.script or ""

    @property
    def keys(self) -> list[str]:
        return [name for name in self.names if not name.startswith("--")]

    @property
    def flags(self) -> set[str]:
        """The options, without dashes."""
        return {name[2:] for name in self.names if name.startswith("--")}

    @property
    def items(self) -> Items:
        return self.launched.started.arguments

    def values(self, flag: str) -> list[str]:
        """The values of a single-valued option, as far as they are known, in order."""
        texts = [getattr(item, "text", None) or "" for item in self.items]
        after = [texts[place + 1] for place, text in enumerate(texts[:-1]) if text == flag]
        return [*after, *(text.partition("=")[2] for text in texts if text.startswith(f"{flag}="))]


class CommandReading(NamedTuple):
    """What a training command says: the reading, why facts and keys are unknown, and why more may be hidden."""

    reading: Reading
    unknown: Mapping[str, str]
    unseen: str | None


class ReadWords(Protocol):
    """Reads words: overrides, or the options of a command line."""

    def __call__(
        self, dialect: Dialect, listed: WordList, target: str, *, text: str | None, acceptances: tuple[Acceptance, ...]
    ) -> Reading: ...


class Framework(NamedTuple):
    """A framework whose launches are read: what its keys are, and what it does with them."""

    name: Dialect
    keys_of: KeysOf
    derive: Callable[[Facts, MutableMapping[str, str]], None]
    """Adds, in place, what the framework computes from its settings to the facts; and to why others are unknown."""
    known: Callable[[str], tuple[frozenset[str], str]]
    """(the keys that its sources declare, the part of the given key that is one of them)"""
    read_words: ReadWords
    read_command: Callable[[StartCommand, str, CommandFacts, Files, Mapping[str, str]], CommandReading]
    """Reads (a command, its file's name, its facts, the script's files, the type of each option's fact); may add to
    the facts."""
    read_yaml: Callable[[YamlDoc, Beside, Dialect], Reading] | None = None
    read_again: Callable[[Reading, Iterable[Setting]], Reading] | None = None
    """Reads other settings in place of a reading's own; None for a command line, where none depends on another."""
    base: Dialect | None = None
    """The framework whose keys it takes, and whose start-up reads them, if that is another one."""
    rows: tuple[FactSpec, ...] = ()
    """The facts that it adds."""
    defaults: Mapping[str, Any] = _NOTHING
    """By fact: its defaults that differ from the table's."""
    is_command_line: bool = False
    """Its launches are command options; others have dotted keys."""
    negates: bool = False
    """It has Megatron-LM's options that switch something off."""
    written: Callable[[str], str] = dotted
    """A key as a launch writes it."""
    model_decides: bool = False
    """The model's own config sets what the framework has no default for."""
    has_recipes: bool = False
    """A recipe sets what a launch omits, unless the launch is a dump of everything."""

    sections: tuple[str, ...] = ()
    """How keys begin that no other framework has: they decide, whatever else there is."""
    owns: Callable[[Collection[str]], bool] = never
    """Whether dotted keys, which no unsupported framework has, are its own."""
    knows: Callable[[str], bool] | None = None
    """Whether some version declares a dotted key."""
    may_have: frozenset[str] = frozenset()
    """The sections that its keys may be in."""
    options: frozenset[str] = frozenset()
    """Options that tell it from Megatron-LM."""
    sees: Callable[[Mapping[str, Any]], bool] = never
    """Whether a YAML is its own at sight."""
    repeats: bool = False
    """Some of upstream's own YAML of that kind repeats keys, and its loader takes the last."""
    is_target: Callable[[Mapping[str, Any]], bool] = never
    """Whether a YAML names one of its classes or recipes."""
    names_recipe: Callable[[Mapping[str, Any]], bool] = never
    """Whether a YAML has a block that names one of its recipes."""
    inherits: Callable[[YamlDoc, Beside], bool] = never
    """Whether a YAML that has none of its keys inherits some, from a file that may be read."""
    named: tuple[str, ...] = ()
    """Words of its scripts and configurations, which tell that a text may be a launch."""
    starts: Callable[[StartCommand], bool] = never
    """Whether a command starts its training, by a program that no other framework has."""
    may_start: Callable[[StartCommand], bool | None] = nothing
    """The same by a program or keys that others may have as well; None: neither."""
    settles: Callable[[StartCommand], bool] = never
    """Whether a command that is told to be its own can't be another's."""
    refuses: Callable[[StartCommand], str | None] = nothing
    """What a command starts that is its own, but isn't read; None: nothing such."""
    by_ray: Callable[[str], bool] = never
    """Whether Ray starts the ranks of a program that is started once."""
    is_training: Callable[[str], bool] = always
    """Whether a program of its own trains, although it isn't said how the model is split."""
    refers: bool = False
    """Settings may refer to others, or switch off a section: a change reads all again."""
    several_models: bool = False
    """A launch may have several models, whose settings follow each other: `--set` reads all again."""
    nodes_by: Callable[[Mapping[str, Fact], int], tuple[str, int | str]] = plain_nodes
    """(facts, how many nodes are to train) -> the fact that sets them, and its value."""
    follow: Callable[[Mapping[str, Fact], Collection[str]], Mapping[str, Fact]] = none_follows
    """(facts without a key, names of those that changed) -> what it reads from them."""
    left_open: Callable[[Reading, Reading, Mapping[str, str]], Mapping[str, str]] = nothing_open
    """(a launch's main model, another one, why the main one's keys are unknown) -> why the other's are."""

    def has_key(self, key: str) -> bool:
        """Whether some version declares the key."""
        return self.knows(key) if self.knows is not None else is_declared(self.known, key)

    def names(self) -> frozenset[str]:
        """The names of all options in its sources, without the sections that they stand in."""
        if self.negates:
            return self.known("")[0]
        return frozenset({key.rpartition(".")[2] for key in section(self.name)} | section("transformer"))
