"""What a reader returns (`Setting`, `Reading`) and what the rules see (`Fact`, `Launch`).

Named tuples: a frozen dataclass takes seven times as long to define, and every `hcp check` defines these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

from megatron_hcp.bash.reason import WhyUnknown
from megatron_hcp.ground.place import Location
from megatron_hcp.ground.record import NamedTuple

if TYPE_CHECKING:
    from megatron_hcp.bash.run_time import SetupLine
    from megatron_hcp.bash.value import Items

Dialect = Literal["mlm", "bridge", "bridge-provider", "verl", "nemo-rl", "ms-swift", "slime"]
Form = Literal["shell", "args-yaml", "yaml", "overrides", "args"]
Origin = Literal[
    "launch",
    "default",
    "presumed",
    "recipe",
    "sourced",
    "model",
    "model-name",
    "image",
    "upstream",
    "assumed",
    "installed",
    "derived",
    "project",
]

DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
ELASTIC_STARTS = ("torchrun", "ft_launcher")
"""Values of the fact `start` for programs that run once per node and start its ranks."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Fact(NamedTuple):
    """One known value. `value` None is a value too: upstream's None, which isn't the same as unknown.

    `key` is the upstream key it was read from, as written; None if nothing was written.
    """

    value: Any
    origin: Origin
    location: Location | None = None
    key: str | None = None


class Setting(NamedTuple):
    """One upstream key as written, before it is interpreted.

    `key`: Megatron-LM's argparse destination (`context_parallel_size`), or a dotted path (Bridge, verl). `value`: plain
    Python (str, int, float, bool, None, list); a Megatron-LM flag has a list of strings, empty if nothing follows the
    flag, and False if an edit leaves it out. `location` spans the value (the whole flag on a command line). `sign` is
    how an override in Hydra's syntax starts: "" must find the key in the configuration, "+" must not, "++" takes
    either; None if it isn't an override.
    """

    key: str
    value: Any
    location: Location | None = None
    sign: str | None = None
    written: str | None = None
    """An option as it is written, where it has underscores: `--seq_length`. Upstream's have dashes, but for ms-swift's.
    """


class Acceptance(NamedTuple):
    """A comment `# hcp: ignore=RULE reason` in the launch. It covers its own line, and from there to `last_line`."""

    rule: str
    reason: str
    location: Location
    last_line: int


class Elsewhere(WhyUnknown):
    """A reason why a value is unknown: something that the launch refers to determines it (its model, a checkpoint).

    Other reasons are words that couldn't be read.
    """


BY_RELEASE = "; add --assume bridge=VERSION"
"""The end of a reason why a value is unknown: the launch's recipe has another one in another release."""


class FromRecipe(NamedTuple):
    """The recipe behind a launch: how origins name it, and its settings by key.

    `stated` is the name given with `--recipe`; None if the launch itself names the recipe.
    """

    origin: str
    by_key: Mapping[str, Setting]
    stated: str | None = None
    varies: frozenset[str] | None = None
    """Keys that recipes decide, unknown where `by_key` lacks them; others have their class's default. None: unknown."""


class Beside(NamedTuple):
    """What a script is read together with."""

    folder: str | None = None
    """The script's own folder: files in it that the script sources or starts are read. None: none are."""
    sources: tuple[str, ...] = ()
    """Files that stand for sourced ones, and folders to look for them in (`--source`)."""
    arguments: tuple[str, ...] | None = None
    """What the script is started with (`--args`); None if that isn't known."""
    variables: tuple[tuple[str, str], ...] = ()
    """(variable, value) for those that the script leaves open (`--assume env.NAME=VALUE`)."""


ALONE = Beside()


class ProjectSettings(NamedTuple):
    """What the repository's `.hcp.yaml` states for a launch: facts, and what options would give if they did not."""

    facts: Mapping[str, Fact] = _NOTHING
    dialect: Dialect | None = None
    sources: tuple[str, ...] = ()
    model: str | None = None
    """A file, or the name of a public model."""
    site: str | None = None
    """A site file, whose facts are among `facts`."""


class UpstreamTree(NamedTuple):
    """A tree of upstream's own code that `--upstream` names: a checkout, a fork, an unpacked wheel, what is installed.

    `release` is the version that it states; None if it states none. `cached`: what is read of it may be kept.
    """

    repo: str
    path: str
    release: str | None
    cached: bool = True


class RunText(NamedTuple):
    """An argument whose text only the job knows: `names` holds, for each part, whether it is a variable's name.

    Such a part may also be a date, as the launch's script asks for it: `$(date +%F)`, or a choice that a condition of
    the script makes (`LAUNCH_CHOICE`). `splits`: it is any number of words. `giver`: what may set its
    variable in the script, if that isn't read: `blend.sh, which line 17 sources`.
    """

    parts: tuple[str, ...]
    names: tuple[bool, ...]
    splits: bool = False
    giver: str = ""

    def __str__(self) -> str:
        return "".join(
            f"${{{part}}}" if is_name and not part.startswith("$(") else part
            for part, is_name in zip(self.parts, self.names, strict=True)
        )

    @property
    def unknown(self) -> tuple[str, ...]:
        """The variables and dates in it."""
        return tuple(part for part, is_name in zip(self.parts, self.names, strict=True) if is_name)


def is_date(part: str) -> bool:
    """Whether an unknown part of a `RunText` is a date, not the name of a variable."""
    return part.startswith("$(date ")


def at_launch_time(date: str) -> str:
    """The same date for all words of a job: that of the second in LAUNCH_TIME.

    >>> at_launch_time("$(date +%F)")
    '$(date -d "@$launch_time" +%F)'
    """
    return date.replace("date", f'date -d "{OF_LAUNCH_TIME}"', 1)


def is_of_script(part: str) -> bool:
    """Whether an unknown part of a `RunText` is what a command of the script prints, or a choice that it makes."""
    return part.startswith(LAUNCH_CHOICE) or (
        part.startswith(LAUNCH_OUTPUT) and part.removeprefix(LAUNCH_OUTPUT).isdecimal()
    )


OF_THE_JOB = frozenset(
    "already around asked attempt code container ends exclude hcp launch mounts name nodes options patience port "
    "preempted program python restarts run said shown start training verdict why".split()
)
"""The variables that a job's script sets for itself: a launch's word that reads one from outside would read that."""
LAUNCH_OUTPUT = "launch_output_"
"""The shell's variables, with a number, for what commands of the launch's script print."""
LAUNCH_CHOICE = "$(set +euo pipefail; "
"""How text of the launch's script starts that the job's shell runs: as in the script, it may fail or find nothing."""
LAUNCH_TIME = "launch_time"
"""The shell's variable for the second of which the dates in the launch's words are."""
OF_LAUNCH_TIME = f"@${LAUNCH_TIME}"
"""How the shell's text reads it."""
LAUNCH_FOLDER = "launch_folder"
"""The variable of a `RunText` that stands for the folder of the launch's own file."""
Argument = str | RunText
"""A word of a command; `RunText` if it contains variables that Slurm sets (`run-${SLURM_JOB_ID}`)."""


class Reading(NamedTuple):
    """What a reader found in one launch; `megatron_hcp.launch.build` makes facts of it.

    `complete` says what an absent key means: True = upstream's default for that version (a Megatron-LM command line, a
    full Bridge YAML, verl), False = unknown (an override list: the recipe decides). `facts` are those without a key:
    `start`, `nodes`, `gpus_per_node`, `placement`, `env.NAME`, …. `unknown` maps a setting key or a fact name to the
    reason why it couldn't be evaluated. `unseen` says why settings may exist that the reader couldn't see (an array it
    couldn't expand): then an absent key is unknown even if `complete` is True.
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
    """The target's text, for patches; None if there is no file."""
    role: str = ""
    """verl only: whose model this is, as the prefix of its keys (`actor_rollout_ref.actor`)."""
    others: tuple[Reading, ...] = ()
    """Further models in the same launch (verl's ref and critic), each with its own reading."""
    items: Items = ()
    """A script's training command: the program's arguments as bash makes them, for `forms.script.arguments`."""
    setup: tuple[SetupLine, ...] = ()
    """What the script does before it to set up its software."""
    removed: tuple[str, ...] = ()
    """Keys that Hydra overrides (`~key`) remove: from the launch, and from what its program has by default."""
    beside: Beside = ALONE
    """What a script was read together with."""
    ordinal: int = -1
    """Which of a script's training commands this is, from 0; -1 if it has only one."""
    command: str | None = None
    """Which of several training commands this is, in words: its number, and how it differs from the others."""
    nth: tuple[int, int] = (1, 1)
    """Its number, from 1, and how many there are."""
    differs: str = ""
    """How it differs from the others."""
    line: int | None = None
    """Where that command is."""
    start: Location | None = None
    """Where the target's own text starts the training; None if it does so in another file, or is no script."""
    written: tuple[Setting, ...] = ()
    """NeMo-RL only: the settings before their references were evaluated; empty where there are none."""
    notes: tuple[str, ...] = ()
    """Notes for the user on how the launch was read; shown by `--show`."""
    upstream: tuple[UpstreamTree, ...] = ()
    """Upstream's own code, by which its start-up is judged instead of by hcp's tables of releases."""
    project: Mapping[str, Fact] = _NOTHING
    """What the repository's `.hcp.yaml` states for this launch: less than the launch, more than its image."""
    recipe: FromRecipe | None = None
    """Bridge: the recipe whose settings are included here, with lower precedence than the launch's."""


class Launch(NamedTuple):
    """Everything that rules may read: the facts, each with its origin, and why the others are unknown."""

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


def shown_value(value: Any) -> str:
    """A fact's value as a person writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(shown_value, value)) + "]"
    return str(value)


def has_references(settings: Iterable[Setting]) -> bool:
    """Whether a value needs `interpolate.resolve`: `${…}`, or `???` for a value yet to be given."""
    texts = (str(value) if isinstance(value, list) else value for _, value, *_ in settings)
    return any(isinstance(text, str) and ("${" in text or text == "???") for text in texts)
