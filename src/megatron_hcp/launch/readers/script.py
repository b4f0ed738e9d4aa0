"""Launches inside shell scripts and sbatch files. The script is parsed and followed, never run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from posixpath import basename

from megatron_hcp.bash.reason import ByVariable
from megatron_hcp.ground.errors import HcpError, UnrecognisedError
from megatron_hcp.launch.dialects.foreign import WANTED, not_supported, of_tools, sets_ascend
from megatron_hcp.launch.dialects.framework import Framework, StartCommand
from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.dialects.table import types_of
from megatron_hcp.launch.fact import ALONE, Beside, Dialect, Fact, Reading
from megatron_hcp.launch.forms.script.apart import refuse_apart, refuse_unfilled
from megatron_hcp.launch.forms.script.facts import facts_of, is_parallel
from megatron_hcp.launch.forms.script.flags import location_of
from megatron_hcp.launch.forms.script.follow import MAX_LAUNCHES, Followed, follow
from megatron_hcp.launch.forms.script.options import counted_by_default
from megatron_hcp.launch.forms.script.started import Launched
from megatron_hcp.launch.readers.commands import command_of, dialect_of, foreign_name, may_be, started_by
from megatron_hcp.launch.readers.detect import lost_end
from megatron_hcp.launch.readers.several import MAX_JUDGED, Training, judged, several

_VARIANTS: dict[Dialect, Dialect] = {"bridge": "bridge-provider"}


def read_shell(
    text: str, target: str, forced_dialect: Dialect | None = None, beside: Beside = ALONE, ordinal: int = -1
) -> Reading:
    """One launch of a script: the training command with that number, as in `read_launches`.

    Without a number it is the last training command that says how the model is split, else the last one.

    Raises:
        HcpError: no training command, another framework's, or a text that is too long or binary.
    """
    script = follow(text, target, beside)
    found = trainings(script, text, target, forced_dialect)
    if ordinal >= 0:
        found = judged(found)
        return reading_of(script, found[min(ordinal, len(found) - 1)], text, target)._replace(ordinal=ordinal)
    split = [training for training in found if training.splits]
    chosen = (split or found)[-1]
    notes = []
    if len(found) > 1:
        line = location_of(chosen.launched.started.span).line
        which = "the last that says how the model is split" if split else "the last one"
        notes.append(f"{len(found)} training commands; this is {which}, in line {line}")
    return reading_of(script, chosen, text, target, notes)


def read_launches(
    text: str, target: str, forced_dialect: Dialect | None = None, beside: Beside = ALONE
) -> tuple[Reading, ...]:
    """Every launch of a script, in start order; those that are read identically count as one.

    Raises:
        HcpError: as `read_shell`, or more launches than are checked.
    """
    script = follow(text, target, beside)
    found = judged(trainings(script, text, target, forced_dialect))
    if len(script.launches) >= MAX_LAUNCHES or len(found) > MAX_JUDGED:
        raise HcpError(
            f"{target} starts {len(script.launches)} programs or more",
            wanted=f"a script with at most {MAX_JUDGED} launches",
            do="put those to be checked into separate scripts",
        )
    if len(found) == 1:
        return (reading_of(script, found[0], text, target),)
    return several(
        [reading_of(script, one, text, target)._replace(ordinal=number) for number, one in enumerate(found)],
        [location_of(one.launched.started.span) for one in found],
    )


def trainings(script: Followed, text: str, target: str, forced: Dialect | None) -> list[Training]:
    """The training commands of a followed script, each with its dialect."""
    found: list[Training] = []
    untold: list[Training] = []
    name: str | None = None
    other: tuple[Dialect, int] | None = None
    for launched in script.launches:
        if _is_hcp(launched):
            continue
        command = command_of(launched)
        dialect = started_by(command)
        foreign = None if dialect else foreign_name(command)
        if foreign is not None:
            name = name or foreign
            continue
        dialect = dialect or dialect_of(command)
        if dialect == "mlm" and sets_ascend(text):
            name = name or "a MindSpeed launch (it sets variables for Ascend devices)"
            continue
        if dialect is not None and forced in (None, dialect, _VARIANTS.get(dialect)):
            found.append(Training(command, forced or dialect, is_parallel(set(command.names))))
        elif forced is not None and may_be(forced, dialect, command):
            untold.append(Training(command, forced, False))
        elif dialect is not None:
            other = other or (dialect, location_of(launched.started.span).line)
    if not found and name is None:
        texts = (text, *(file.text.data.decode("utf-8", "replace") for file in script.files.read.values()))
        name = next(filter(None, map(of_tools, texts)), None)
    if not found and name is None:
        found = untold
    if not found:
        if name is not None:
            raise not_supported(target, name)
        if other is not None:
            raise HcpError(
                f"{target} holds a launch of the dialect {other[0]}, in line {other[1]}",
                wanted=f"one of {forced}, as --dialect says",
                do="omit --dialect",
            )
        if script.walker.is_cut_short:
            raise HcpError(
                f"{target}: {next(note for note in script.walker.notes if 'too long' in note)}, and no training "
                "command precedes it",
                wanted=WANTED,
                do="give a shorter script, or its command line after --",
            )
        others = f" ({len(script.launches)} other Python command(s))" if script.launches else ""
        if script.unread:
            raise script.unread[0].within(f"{target} has no training command{others}, and")
        if (lost := lost_end(script.script, target)) is not None:
            raise lost
        refuse_unfilled(text, target)
        wanted = WANTED if forced is None else f"a launch of the dialect {forced}"
        raise UnrecognisedError(
            f"{target} has no training command{others}",
            wanted=f"{wanted} (torchrun, srun python, python -m …)",
            do="give the script that starts the training",
        )
    refuse_apart(script.apart, [training.launched for training in found])
    return found


def _is_hcp(launched: Launched) -> bool:
    """`python -m megatron_hcp check … -- LAUNCH` in a job that checks itself: it starts no training."""
    script = launched.started.script or ""
    package, _, module = script.partition(".")
    is_ours = package in ("hcp", "megatron_hcp")  # scripts that 0.1.0 rendered name the package "hcp"
    return launched.started.is_module and is_ours and not module.startswith("integrations")


def reading_of(script: Followed, training: Training, text: str, target: str, notes: Sequence[str] = ()) -> Reading:
    command, dialect, _ = training
    launched, framework = command.launched, FRAMEWORKS[dialect]
    items = launched.started.arguments
    facts = facts_of(launched, by_ray=framework.by_ray(command.script))
    if variable := counted_by_default(items):
        facts.known["default_of.nodes"] = Fact(variable, "launch")
    types = types_of(dialect if framework.is_command_line else "mlm")
    reading, unknown, unseen = framework.read_command(command, target, facts, script.files, types)
    said = [*notes, *([f"whether this command runs {launched.doubt}"] if launched.doubt else []), *script.notes()]
    if framework.is_command_line or framework.has_recipes:
        unseen = unseen or _in_a_file(command, framework, reading)
    keys = {setting.key for setting in reading.settings}
    splits = training.splits or is_parallel(keys) or _is_by_fsdp(reading, keys)
    if script.walker.used_arguments and not framework.has_recipes and not splits:
        unseen = unseen or _ARGUMENTS
    elif script.walker.used_arguments:
        said.append("the script's own arguments ($1, $@) aren't known; it is read as if started without any")
    if "\r\n" in text:
        said.append("the file has Windows line endings (CRLF): bash doesn't run it the way it looks")
    start = location_of(launched.started.span)
    reading = reading._replace(
        dialect=dialect,
        form="shell",
        acceptances=script.acceptances(),
        text=text,
        beside=script.files.beside,
        notes=(*reading.notes, *said),
        items=items,
        setup=launched.setup,
        start=start if start.file == target else None,
    )
    return _in_script(reading, facts.known, unknown, unseen)


_SETTINGS = (".yaml", ".yml", ".json", ".toml")
"""How the names of files that hold settings end."""
_ARGUMENTS = ByVariable.of("nothing but the script's arguments ($@) can say how the model is split", "@")


def _is_by_fsdp(reading: Reading, keys: set[str]) -> bool:
    """Whether the launch itself says that FSDP splits the model."""
    strategy = reading.facts.get("strategy")
    return strategy is not None and strategy.value != "megatron" and any(".fsdp_config." in key for key in keys)


def _in_a_file(command: StartCommand, framework: Framework, reading: Reading) -> str | None:
    """Why settings may be hidden: an option that the framework doesn't know names a file of them, which isn't read."""
    if not any((getattr(item, "text", None) or "").endswith(_SETTINGS) for item in command.items):
        return None
    read = {basename(setting.location.file) for setting in reading.settings if setting.location}
    for option in sorted(command.flags):
        for value in command.values(f"--{option.replace('_', '-')}") or command.values(f"--{option}"):
            if value.endswith(_SETTINGS) and option not in framework.names() and basename(value) not in read:
                return f"{value[:60]}, which --{option} names, is not read"
    return None


def _in_script(reading: Reading, facts: Mapping[str, Fact], unknown: Mapping[str, str], unseen: str | None) -> Reading:
    """The reading with what the surrounding script adds: facts, keys left open, words that can't be read.

    Further models share all of it.
    """
    left_open = FRAMEWORKS[reading.dialect].left_open
    others = []
    for other in reading.others:
        left = {**other.unknown, **unknown, **left_open(reading, other, unknown)}
        others.append(other._replace(facts={**other.facts, **facts}, unknown=left, unseen=unseen or other.unseen))
    return reading._replace(
        facts={**reading.facts, **facts},
        unknown={**reading.unknown, **unknown},
        unseen=unseen or reading.unseen,
        others=tuple(others),
    )
