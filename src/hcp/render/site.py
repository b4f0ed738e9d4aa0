"""What a job needs to know beside its launch: one table, which is the site file's schema and the command's options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hcp.core.errors import HcpError

KeyType = Literal[
    "size",
    "count",
    "name",
    "word",
    "text",
    "path",
    "time",
    "bool",
    "choice",
    "texts",
    "paths",
    "map",
    "array",
    "timeouts",
]

_WORD = re.compile(r"[A-Za-z0-9@%_][A-Za-z0-9@%_+=:,./\[\]&|!*()-]*\Z")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}\Z")
_TIME = re.compile(r"(?:\d+-)?\d+(?::\d{1,2}){0,2}\Z")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_TIMEOUTS = re.compile(r"[a-z]+:\d+(?:,[a-z]+:\d+)*\Z")
_LONGEST = 100_000
"""Bytes of one value: Linux takes 128 KiB per argument or variable."""
_LONGEST_PATH = 4096


@dataclass(frozen=True)
class Key:
    """One fact about the site or the job. `needed` says, in words, what it is needed for; empty: not always."""

    name: str
    type: KeyType
    doc: str
    default: Any = None
    choices: tuple[str, ...] = ()
    needed: str = ""


KEYS: tuple[Key, ...] = (
    Key("nodes", "size", "number of nodes", needed="the size of the job"),
    Key("gpus_per_node", "size", "GPUs, and so ranks, per node", needed="the ranks of a node"),
    Key("time", "time", "time limit, as Slurm writes it: 4:00:00", needed="Slurm's limit, and when to save"),
    Key("job_name", "name", "name of the job", "train"),
    Key("account", "word", "account to charge"),
    Key("partition", "word", "partition"),
    Key("qos", "word", "quality of service"),
    Key("reservation", "word", "reservation"),
    Key("constraint", "word", "node features that are wanted"),
    Key("exclude", "word", "nodes to leave out"),
    Key("nodelist", "word", "nodes to take"),
    Key("mem", "word", "memory per node; 0 = all", "0"),
    Key("cpus_per_task", "size", "CPU cores per task"),
    Key("gpu_request", "choice", "how GPUs are asked for", "gpus-per-node", ("gpus-per-node", "gres", "none")),
    Key("exclusive", "bool", "whole nodes", True),
    Key("segment", "size", "nodes that must come from one block (NVL72)"),
    Key("switches", "word", "most leaf switches, COUNT or COUNT@WAIT"),
    Key("signal", "size", "seconds before the end at which the trainer is asked to save", 600),
    Key("requeue", "count", "how often the job may be requeued; unset = never"),
    Key("checkpoint_dir", "path", "where the trainer writes checkpoints (read from the launch where it says so)"),
    Key("logs", "path", "folder of the logs; it must exist when the job is submitted", "."),
    Key("python", "path", "interpreter that has hcp and the training stack", "python3"),
    Key("venv", "path", "virtual environment to activate"),
    Key("modules", "texts", "modules to load"),
    Key("program", "texts", "what is started, in words (-m MODULE, or a path), where the launch does not say it"),
    Key("container_runtime", "choice", "how containers are started", None, ("pyxis", "apptainer")),
    Key("container_image", "path", "container image"),
    Key("container_workdir", "path", "working folder in the container"),
    Key("mounts", "paths", "folders to mount in the container: HOST or HOST:CONTAINER"),
    Key("shared", "paths", "folders that every node must see"),
    Key("env", "map", "environment variables"),
    Key("arch", "word", "GPU architecture: sm80, sm90, sm100"),
    Key("nvlink_domain", "size", "GPUs that NVLink joins"),
    Key("facts", "map", "further facts for hcp check: te, mcore, …"),
    Key("array", "array", "words for each element of a job array"),
    Key("comm_test", "bool", "test the communication of every level before training", False),
    Key("ft_timeouts", "timeouts", "ft_launcher: seconds per section", "setup:1800,step:900,checkpointing:1800"),
    Key("ft_outside", "size", "ft_launcher: seconds outside the sections", 1800),
    Key("ft_restarts", "count", "ft_launcher: restarts inside the job", 3),
    Key("verify_level", "choice", "highest level of the steps of a verification job", "gpu", ("static", "cpu", "gpu")),
)
BY_NAME: dict[str, Key] = {key.name: key for key in KEYS}


def load_site(path: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Every key's value: the option where given, else the site file's, else the default; None = not stated.

    Raises:
        HcpError: the file cannot be read or is no mapping, an unknown key, a value that is not of its key's type.
    """
    stated: dict[str, Any] = {}
    if path is not None:
        stated = {name: checked(BY_NAME[name], value, f"{path}: {name}") for name, value in _read(path).items()}
    for name, value in options.items():
        if value is None or value == ():
            continue
        value = checked(BY_NAME[name], value, "--" + name.replace("_", "-"))
        if isinstance(value, dict):
            value = {**stated.get(name, {}), **value}
        stated[name] = value
    return {key.name: stated.get(key.name, key.default) for key in KEYS}


def site_assumptions(site: Mapping[str, Any]) -> tuple[str, ...]:
    """What a site states about the cluster and its software, as `--assume` texts."""
    stated = {name: site[name] for name in ("arch", "nvlink_domain", "nodes", "gpus_per_node")}
    stated |= site["facts"] or {}
    return tuple(f"{name}={value}" for name, value in stated.items() if value is not None)


def _read(path: str) -> dict[str, Any]:
    import yaml

    try:
        data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise HcpError(f"{path}: cannot be read ({error.strerror}); wanted a site file; check the path") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())[:200]
        raise HcpError(f"{path}: cannot be read as YAML ({reason}); wanted a site file; correct it") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise HcpError(f"{path}: found a {type(data).__name__}; wanted a mapping, such as gpus_per_node: 8; correct it")
    for name in data:
        if name not in BY_NAME:
            raise HcpError(f"{path}: unknown key {str(name)[:60]!r}; wanted one of the site keys; {_near(str(name))}")
    return {name: value for name, value in data.items() if value is not None}


def _near(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, BY_NAME, n=1)
    return f"did you mean {near[0]}?" if near else "see `hcp render --help`"


def checked(key: Key, value: Any, where: str) -> Any:
    """The value as its key's type: a str, an int, a bool, a tuple of str or of tuples, or a dict of str.

    Raises:
        HcpError: it is not of the type, or holds what can be quoted nowhere (NUL, too long, a line break in a
            directive). Says where it stood, what was found, and what was wanted.
    """

    def wrong(wanted: str) -> HcpError:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return HcpError(f"{where}: found {shown}; wanted {wanted}; correct it")

    if key.type in ("size", "count"):
        least = 1 if key.type == "size" else 0
        if isinstance(value, str) and value.isdecimal() and len(value) < 10:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 10**9:
            raise wrong(f"a whole number of at least {least}")
        return value
    if key.type == "bool":
        if not isinstance(value, bool):
            raise wrong("true or false")
        return value
    if key.type == "choice":
        if value not in key.choices:
            raise wrong(" or ".join(key.choices))
        return value
    if key.type == "time":
        limit = _time_text(value)
        if limit is None:
            raise wrong("a time limit such as 4:00:00 or 2-12 (in YAML in quotes)")
        return limit
    if key.type == "timeouts":
        if not isinstance(value, str) or not _TIMEOUTS.match(value):
            raise wrong("SECTION:SECONDS,…, such as setup:1800,step:900")
        return value
    if key.type == "name":
        if not isinstance(value, str) or not _PLAIN.match(value):
            raise wrong("a name of letters, digits and . _ -: it becomes the name of a folder")
        return value
    if key.type == "word":
        value = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if not isinstance(value, str) or not _WORD.match(value) or len(value) > 1000:
            raise wrong("one plain word (letters, digits and . _ - + = : , / @ %): Slurm's directives have no quoting")
        return value
    if key.type in ("text", "path"):
        return _text(value, wrong, _LONGEST_PATH if key.type == "path" else _LONGEST)
    if key.type in ("texts", "paths"):
        items = value.split() if isinstance(value, str) and key.type == "texts" else value
        if isinstance(items, str) or not isinstance(items, list | tuple):
            raise wrong("a list")
        return tuple(_text(item, wrong, _LONGEST_PATH if key.type == "paths" else _LONGEST) for item in items)
    if key.type == "array":
        return _array(value, wrong)
    return _map(value, wrong, key.name == "env")


def _text(value: Any, wrong: Any, longest: int = _LONGEST) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value:
        raise wrong("a text")
    check_text(value, wrong, longest)
    return value


def check_text(value: str, wrong: Any, longest: int = _LONGEST) -> None:
    """Returns if a value can stand, quoted, in a script; raises what `wrong(wanted)` makes if not."""
    if "\0" in value:
        raise wrong("a text without NUL bytes")
    try:
        size = len(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise wrong("valid Unicode text") from None
    if size > longest:
        raise wrong(f"at most {longest:,} bytes (found {size:,})")


def _time_text(value: Any) -> str | None:
    """YAML reads 4:00:00 as the number 14400 (base 60): a number of that kind is taken back to a time."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 3600:
        return f"{value // 3600}:{value // 60 % 60:02}:{value % 60:02}"
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return str(value)
    return value if isinstance(value, str) and _TIME.match(value) else None


def seconds_of(time: str) -> int:
    """Seconds of a Slurm time limit: MIN, MIN:SEC, H:MIN:SEC, D-H, D-H:MIN, D-H:MIN:SEC.

    >>> seconds_of("30"), seconds_of("1:30:00"), seconds_of("2-12")
    (1800, 5400, 216000)
    """
    days, dash, rest = time.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:
        hours, minutes, seconds = [*parts, 0, 0][:3]
    elif len(parts) == 1:
        hours, minutes, seconds = 0, parts[0], 0
    else:
        hours, minutes, seconds = ([0, *parts])[-3:]
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds


def _array(value: Any, wrong: Any) -> tuple[tuple[str, ...], ...]:
    import shlex

    if isinstance(value, str) or not isinstance(value, list | tuple) or not value:
        raise wrong("a list with one text (or list of words) per element")
    elements = []
    for item in value:
        if isinstance(item, str):
            try:
                item = shlex.split(item)
            except ValueError as error:
                raise wrong(f"words as a shell would quote them ({error})") from None
        elements.append(tuple(_text(word, wrong) for word in item))
    return tuple(elements)


def _map(value: Any, wrong: Any, is_env: bool) -> dict[str, str | None]:
    if isinstance(value, list | tuple):
        pairs = [str(item).partition("=") for item in value]
        if any(not equals for _, equals, _ in pairs):
            raise wrong("NAME=VALUE")
        value = {name: text for name, _, text in pairs}
    if not isinstance(value, dict):
        raise wrong("a mapping")
    found: dict[str, str | None] = {}
    for name, text in value.items():
        if not isinstance(name, str) or (is_env and not _NAME.match(name)):
            raise wrong("names of letters, digits and underscores")
        if isinstance(text, bool) or not isinstance(text, str | int | float | None):
            raise wrong(f"a text for {name}")
        if text is not None:
            check_text(str(text), wrong)
        found[name] = None if text is None else str(text)
    return found
