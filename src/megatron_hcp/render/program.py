"""A launch as the words of a command, which the job passes to the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from megatron_hcp.bash.reason import ByVariable
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.visible import visible
from megatron_hcp.launch.fact import BY_RELEASE, Argument, Elsewhere, Launch, Reading, RunText
from megatron_hcp.launch.forms.script.arguments import CommandWords

_SAVE_KEYS = {"mlm": "save", "verl": "trainer.default_local_dir"}
_CLUSTER_KEYS = {"trainer.nnodes": "nodes", "trainer.n_gpus_per_node": "gpus_per_node"}
_NOT_WORDS = ("start", "nodes", "gpus_per_node", "ntasks_per_node", "placement", "world_size", "script")
"""Facts that are not passed as arguments of the program; the job states them itself."""

GIVE_ARGUMENTS = "give the script's arguments with --args 'FIRST SECOND'"
OF_SCRIPT = "a word of the launch is the output of a command, or depends on a condition, of its script"
OR_WORDS = "or give the launch's words after --"
"""What is said of a word that isn't known."""

Lines = tuple[tuple[Argument, ...], ...]
"""The words, one option with its values per line."""


def launch_words(launch: Launch, own: CommandWords, cli_words: Sequence[str], places_ranks: bool = False) -> Lines:
    """The words that start this launch, without the program.

    Args:
        launch: as read from a target, `cli_words` included.
        own: the words of its training command, if it is a script.
        cli_words: the words after `--` on our own command line.
        places_ranks: the job places the ranks by the launch's sizes, and checks their groups.

    Raises:
        HcpError: a value cannot be determined from the text (a variable that the script does not set, …).
    """
    reading = launch.reading
    if reading.form == "shell":
        if own.argv is None:
            raise HcpError(
                f"{reading.target}: an argument of the training command is not known ({visible(own.hidden)[:200]})",
                wanted="every word of it",
                do=_how_to_state(own.hidden),
            )
        if places_ranks:
            _refuse_unknown_ranks(launch)
        return _lines((*own.argv, *cli_words))
    _all_known(reading)
    if reading.dialect == "mlm":
        return tuple(_flag(setting.key, setting.value) for setting in reading.settings)
    if reading.form == "yaml":
        return (*_config_file(reading), *((word,) for word in cli_words))
    if reading.target == "<command line>":
        return tuple((word,) for word in cli_words)
    if reading.form == "overrides" and reading.text is not None:
        from megatron_hcp.launch.forms.words.split import split_words

        return (*((word.text,) for word in split_words(reading.text, reading.target)), *((word,) for word in cli_words))
    return tuple((f"{setting.key}={_yaml(setting.value)}",) for setting in reading.settings)


def _how_to_state(hidden: str) -> str:
    if not isinstance(hidden, ByVariable):
        return f"write the value out, {OR_WORDS}"
    if hidden.file:  # what it sets may be an array, which no VALUE can state
        return f"name {visible(hidden.file)[:200]} with --source FILE, {OR_WORDS}"
    known = visible(", ".join(hidden.choices[:12])) + (", ..." if len(hidden.choices) > 12 else "")
    if hidden.argument:
        one_of = f" (${hidden.argument} is one of {known})" if known else ""
        return f"{GIVE_ARGUMENTS}{one_of}"
    one_of = f" ({hidden.variable} is one of {known})" if known else ""
    return f"{_stated(hidden.variable, *hidden.further)}{one_of}, {OR_WORDS}"


def _stated(*names: str) -> str:
    first, *others = dict.fromkeys(names)
    return f"state {first} with --assume env.{first}=VALUE" + "".join(f", and {name} likewise" for name in others)


_DECIDES_RANKS = ("tp", "cp", "pp", "ep", "etp", "gtp", "hcp_sizes", "rank_order")
"""Facts that decide where each rank runs, and with which others it forms a group."""


def _refuse_unknown_ranks(launch: Launch) -> None:
    """Returns if the launch says how its ranks are split, as the job's checks of ranks and groups need it.

    Raises:
        HcpError: a size is a variable, or an output, that only the running job has.
    """
    unknown = {name: launch.unknown[name] for name in _DECIDES_RANKS if name in launch.unknown}
    lost = {name: why for name, why in unknown.items() if not (isinstance(why, Elsewhere) or why.endswith(BY_RELEASE))}
    if not lost:
        return
    by_variable = [why for why in lost.values() if isinstance(why, ByVariable)]
    names = [why.variable for why in by_variable if not why.argument]
    ways = [_stated(*names)] if names else []
    ways += [GIVE_ARGUMENTS] if len(names) < len(by_variable) else []
    ways += ["write out what no variable holds"] if len(by_variable) < len(lost) else []
    name, why = next(iter(lost.items()))
    raise HcpError(
        f"{launch.reading.target}: {name}, by which the job places its ranks, is not known ({visible(why)[:200]})",
        wanted="sizes that are known before the job runs",
        do="; ".join(ways),
    )


def _lines(words: Sequence[Argument]) -> Lines:
    """One option with its values per line; any other word gets its own line."""
    lines: list[tuple[Argument, ...]] = []
    for word in words:
        text = str(word)
        if lines and str(lines[-1][0]).startswith("-") and not text.startswith("-") and "=" not in text:
            lines[-1] = (*lines[-1], word)
        else:
            lines.append((word,))
    return tuple(lines)


def program_words(launch: Launch, stated: Sequence[str]) -> tuple[str, ...]:
    """The words of the program to start: stated by the user, named by the launch, or the dialect's own; empty if
    unknown."""
    if stated:
        return tuple(stated)
    script = launch.facts.get("script")
    if script is not None and script.value:
        name = str(script.value)
        if name.startswith("megatron "):  # ms-swift's command, which starts torchrun with this module
            return "-m", f"swift.cli._megatron.{name.partition(' ')[2]}"
        return (name,) if name.endswith(".py") or "/" in name else ("-m", name)
    return ("-m", "verl.trainer.main_ppo") if launch.dialect == "verl" else ()


def cluster_words(launch: Launch, site: Mapping[str, Any]) -> Lines:
    """verl's settings for the size of the cluster, which defaults to 1 node of 8 GPUs, whatever the job has.

    Raises:
        HcpError: the launch states a size that differs from the job's.
    """
    added: list[tuple[str, ...]] = []
    stated = {setting.key: setting.value for setting in launch.reading.settings}
    for key, name in _CLUSTER_KEYS.items():
        if key not in stated:
            added.append((f"{key}={site[name]}",))
        elif str(stated[key]) != str(site[name]):
            raise HcpError(
                f"{key}: the launch says {stated[key]}, the job has {site[name]}",
                wanted="the same",
                do=f"correct one, or leave {key} out of the launch",
            )
    return tuple(added)


def with_cluster_words(lines: Lines, added: Lines) -> Lines:
    """The launch's words with those added; a size that only the shell knows is dropped: another word states it."""
    kept = (line for line in lines if not (isinstance(line[0], RunText) and _key(line[0]) in _CLUSTER_KEYS))
    return (*kept, *added)


def _key(word: Argument) -> str:
    return str(word).partition("=")[0].lstrip("+")


def saved_to(launch: Launch, words: Sequence[Argument]) -> Argument | None:
    """The checkpoint folder, if the launch or the words of its command name one; its last occurrence counts."""
    key = _SAVE_KEYS.get(launch.dialect, "checkpoint.save")
    for before, word in zip(("", *words)[-2::-1], words[::-1], strict=False):
        if isinstance(word, RunText) and launch.dialect == "mlm" and before == f"--{key}":
            return word._replace(splits=False)
        if isinstance(word, RunText) and word.parts[0].startswith(f"{key}="):
            return word._replace(parts=(word.parts[0].partition("=")[2], *word.parts[1:]))
    for setting in reversed(launch.reading.settings):
        if setting.key == key:
            value = setting.value[-1] if isinstance(setting.value, list) and setting.value else setting.value
            return str(value) if value else None
    return None


def _all_known(reading: Reading) -> None:
    lost = [
        (key, why)
        for key, why in reading.unknown.items()
        if key not in _NOT_WORDS and not key.startswith(("env.", "sbatch.", "srun.", "torchrun."))
    ]
    if reading.unseen is not None:
        lost.append(("the arguments", reading.unseen))
    if lost:
        key, why = lost[0]
        more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
        raise HcpError(
            f"{reading.target}: {key} is not known: {why}{more}",
            wanted="every word of the launch",
            do=f"write the value out, {OR_WORDS}",
        )


def _flag(key: str, value: Any) -> tuple[str, ...]:
    values = value if isinstance(value, list | tuple) else [value]
    return ("--" + key.replace("_", "-"), *map(str, values))


def _config_file(reading: Reading) -> Lines:
    if reading.target.startswith("<"):
        raise HcpError(
            f"{reading.target}: a configuration on standard input is gone when the job runs",
            wanted="a file",
            do="save it where the nodes can read it",
        )
    if reading.dialect == "verl":
        path = PurePath(reading.target)
        return ("--config-path", str(path.parent)), ("--config-name", path.stem)
    return (("--config-file", reading.target),)


def _yaml(value: Any) -> str:
    import json

    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
