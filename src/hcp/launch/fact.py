"""What a reader hands over (`Setting`, `Reading`) and what the rules see (`Fact`, `Launch`).

Named tuples: a frozen dataclass takes seven times as long to define, and every `hcp check` defines these.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from hcp.core.place import Location

Dialect = Literal["mlm", "bridge", "bridge-provider", "verl", "nemo-rl", "ms-swift", "slime"]
Form = Literal["shell", "args-yaml", "yaml", "overrides", "args"]
Origin = Literal[
    "launch", "default", "presumed", "recipe", "sourced", "model", "model-name", "assumed", "installed", "derived"
]

DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
COMMAND_LINES: tuple[Dialect, ...] = ("mlm", "slime", "ms-swift")
"""The dialects whose launches are options of a command; the others are dotted keys. slime is also miles."""
MODEL_DECIDES: tuple[Dialect, ...] = ("verl", "nemo-rl", "ms-swift")
"""The dialects in which the model's own config decides what has no default of the framework's."""
ELASTIC_STARTS = ("torchrun", "ft_launcher")
"""Values of the fact `start` for programs that run once on a node and start its ranks."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Fact(NamedTuple):
    """One known value. `value` None is a value too: upstream's None, which is not the same as unknown.

    `key` is the upstream key it was read from, as written; None where nothing was written.
    """

    value: Any
    origin: Origin
    location: Location | None = None
    key: str | None = None


class Setting(NamedTuple):
    """One upstream key as it was written, before it means anything.

    `key`: Megatron-LM's argparse destination (`context_parallel_size`), or a dotted path (Bridge, verl).
    `value`: plain Python (str, int, float, bool, None, list); a Megatron-LM flag has a list of strings, empty
    where nothing follows the flag. `location` spans the value (the whole flag on a command line).
    """

    key: str
    value: Any
    location: Location | None = None


class Acceptance(NamedTuple):
    """A comment `# hcp: ignore=RULE reason` in the launch. It covers its own line and the next one."""

    rule: str
    reason: str
    location: Location


class Elsewhere(str):
    """A reason why a value is unknown: something that the launch names decides it (its model, a checkpoint).

    Other reasons are words that could not be read.
    """

    __slots__ = ()


class FromRecipe(NamedTuple):
    """The recipe behind a launch: how origins name it, and its settings by key.

    `stated` is the name that `--recipe` gave; None where the launch itself names the recipe.
    """

    origin: str
    by_key: Mapping[str, Setting]
    stated: str | None = None


class Beside(NamedTuple):
    """What a script is read together with."""

    folder: str | None = None
    """The script's own: files in it that the script sources or starts are read. None: none are."""
    sources: tuple[str, ...] = ()
    """Files that stand for sourced ones, and folders to look for them in (`--source`)."""
    arguments: tuple[str, ...] | None = None
    """What the script is started with (`--args`); None where that is not known."""


ALONE = Beside()


class RunText(NamedTuple):
    """An argument whose text the job alone knows: `names` holds, for each part, whether it is a variable's name."""

    parts: tuple[str, ...]
    names: tuple[bool, ...]

    def __str__(self) -> str:
        return "".join(f"${{{part}}}" if name else part for part, name in zip(self.parts, self.names, strict=True))


Argument = str | RunText
"""A word of a command; `RunText` where it holds variables that Slurm sets (`run-${SLURM_JOB_ID}`)."""


class Reading(NamedTuple):
    """What a reader found in one launch; `hcp.launch.build` makes the facts from it.

    `complete` says what an absent key means: True = upstream's default for that version (a Megatron-LM command
    line, a full Bridge YAML, verl), False = unknown (an override list: the recipe decides).
    `facts` are those that no key holds: `start`, `nodes`, `gpus_per_node`, `placement`, `env.NAME`, ….
    `unknown` maps a setting key or a fact name to the reason why it could not be evaluated.
    `unseen` says why settings may exist that the reader could not see (an array it could not expand): then an
    absent key is unknown even where `complete` is True.
    """

    dialect: Dialect
    target: str
    form: Form
    settings: tuple[Setting, ...] = ()
    facts: Mapping[str, Fact] = _NOTHING
    unknown: Mapping[str, str] = _NOTHING
    complete: bool = True
    unseen: str | None = None
    acceptances: tuple[Acceptance, ...] = ()
    text: str | None = None
    """The target's text, for patches; None where there is no file."""
    role: str = ""
    """verl only: whose model this is, as the prefix of its keys (`actor_rollout_ref.actor`)."""
    others: tuple[Reading, ...] = ()
    """Further models in the same launch (verl's ref and critic), each a reading of its own."""
    argv: tuple[Argument, ...] | None = None
    """A script's training command: the program's arguments, word for word; None where one is not known."""
    hidden_argument: str = ""
    """Which one, and why."""
    beside: Beside = ALONE
    """What a script was read together with."""
    ordinal: int = -1
    """Which of a script's training commands this is, from 0; -1 where it has only one."""
    command: str | None = None
    """Which of several training commands this is, in words: its number, and what sets it apart."""
    line: int | None = None
    """Where that command stands."""
    written: tuple[Setting, ...] = ()
    """NeMo-RL only: the settings before their references were evaluated; empty where there are none."""
    notes: tuple[str, ...] = ()
    """What a person should know about how the launch was read; shown by `--show`."""
    recipe: FromRecipe | None = None
    """Bridge: the recipe whose settings are among these, below those of the launch."""


class Launch(NamedTuple):
    """Everything the rules may read: the facts, each with its origin, and why the others are unknown."""

    reading: Reading
    facts: Mapping[str, Fact]
    unknown: Mapping[str, str]
    assumed: Mapping[str, Fact] = _NOTHING
    model: Mapping[str, Fact] = _NOTHING
    conflicts: tuple[tuple[str, Fact, Fact], ...] = ()
    """(name, what the launch says, what was assumed instead)"""

    @property
    def dialect(self) -> Dialect:
        return self.reading.dialect
