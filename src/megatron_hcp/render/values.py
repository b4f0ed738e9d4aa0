"""Values from a site file and from options of the same names: each as its key's type, or one clear error line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any, Literal

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.numbers import time_limit_s

ValueType = Literal[
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
    "env",
    "array",
    "timeouts",
    "options",
]
Wrong = Callable[[str], HcpError]
"""Builds the error from what was wanted."""

_PLAIN: dict[ValueType, tuple[re.Pattern[str], str]] = {
    "name": (
        re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}\Z"),
        "a name of letters, digits and . _ -: it becomes the name of a folder",
    ),
    "word": (
        re.compile(r"[A-Za-z0-9@%_./][A-Za-z0-9@%_+=:,./\[\]&|!*()-]{0,999}\Z"),
        "one plain word (letters, digits and . _ - + = : , / @ %): Slurm's directives have no quoting",
    ),
    "timeouts": (
        re.compile(r"[a-z]+:\d+(?:,[a-z]+:\d+)*\Z"),
        "SECTION:SECONDS,…, such as setup:1800,step:900",
    ),
}
"""Types defined by a pattern, and what is wanted."""
_OPTION = re.compile(r"--[a-z][a-z0-9-]*(?:=[A-Za-z0-9@%_+=:,./\[\]&|!*()-]+)?\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LARGEST = 999_999_999
_LONGEST = 100_000
"""Bytes of one value: Linux takes 128 KiB per argument or variable."""
_LONGEST_PATH = 4096


def checked(kind: ValueType, value: Any, where: str, choices: Sequence[str] = ()) -> Any:
    """The value as its type: a str, an int, a bool, a tuple of str or of tuples, or a dict of str.

    Raises:
        HcpError: it has the wrong type, or content that cannot be quoted (NUL, too long, a line break in a
            directive). Says where it was, what was found, and what was wanted.
    """
    value = _converted(kind, value)

    def wrong(wanted: str) -> HcpError:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return HcpError(f"{where}: found {shown}", wanted=wanted, do="correct it")

    match kind:
        case "size" | "count":
            return _whole_number(value, 1 if kind == "size" else 0, wrong)
        case "bool":
            if not isinstance(value, bool):
                raise wrong("true or false")
            return value
        case "choice":
            if value not in choices:
                raise wrong(" or ".join(choices))
            return value
        case "time":
            return _time(value, wrong)
        case "name" | "word" | "timeouts":
            return _plain(kind, value, wrong)
        case "text" | "path":
            return _text(value, wrong, _LONGEST_PATH if kind == "path" else _LONGEST)
        case "texts":
            return _texts(value.split() if isinstance(value, str) else value, wrong, _LONGEST)
        case "paths":
            return _texts(value, wrong, _LONGEST_PATH)
        case "array":
            return _array(value, wrong)
        case "options":
            return _options(value, wrong)
        case "map" | "env":
            return _map(value, wrong, kind == "env")


def _converted(kind: ValueType, value: Any) -> Any:
    """A number on the command line is text, and in YAML a word that looks like a number is one."""
    if kind in ("size", "count") and isinstance(value, str) and value.isdecimal() and len(value) < 10:
        return int(value)
    if kind == "word" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


def _whole_number(value: Any, least: int, wrong: Wrong) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
        raise wrong(f"a whole number from {least} to {_LARGEST:,}")
    return value


def _plain(kind: ValueType, value: Any, wrong: Wrong) -> str:
    pattern, wanted = _PLAIN[kind]
    if not isinstance(value, str) or not pattern.match(value):
        raise wrong(wanted)
    return value


def _time(value: Any, wrong: Wrong) -> str:
    """YAML reads 4:00:00 as the number 14400 (base 60): a number of that size becomes a time again."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return str(value) if value < 3600 else f"{value // 3600}:{value // 60 % 60:02}:{value % 60:02}"
    if not isinstance(value, str) or time_limit_s(value) is None:
        raise wrong("a time limit such as 4:00:00 or 2-12 (in YAML in quotes)")
    return value


def _text(value: Any, wrong: Wrong, longest: int = _LONGEST) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value:
        raise wrong("a text")
    check_text(value, wrong, longest)
    return value


def _texts(items: Any, wrong: Wrong, longest: int) -> tuple[str, ...]:
    if not isinstance(items, list | tuple):
        raise wrong("a list")
    return tuple(_text(item, wrong, longest) for item in items)


def _options(items: Any, wrong: Wrong) -> tuple[str, ...]:
    texts = _texts([items] if isinstance(items, str) else items, wrong, _LONGEST_PATH)
    for text in texts:
        if not _OPTION.match(text):
            raise wrong("--NAME or --NAME=VALUE of plain characters: Slurm's directives have no quoting")
    return texts


def check_text(value: str, wrong: Wrong, longest: int = _LONGEST) -> None:
    """Returns if a value can be quoted in a script; otherwise raises the error that `wrong(wanted)` builds."""
    if "\0" in value:
        raise wrong("a text without NUL bytes")
    try:
        size = len(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise wrong("valid Unicode text") from None
    if size > longest:
        raise wrong(f"at most {longest:,} bytes (found {size:,})")


def _array(value: Any, wrong: Wrong) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, list | tuple) or not value:
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


def _map(value: Any, wrong: Wrong, is_env: bool) -> dict[str, str | None]:
    if isinstance(value, list | tuple):
        pairs = [str(item).partition("=") for item in value]
        if any(not equals for _, equals, _ in pairs):
            raise wrong("NAME=VALUE")
        value = {name: text for name, _, text in pairs}
    if not isinstance(value, dict):
        raise wrong("a mapping")
    found: dict[str, str | None] = {}
    for name, text in value.items():
        if not isinstance(name, str) or (is_env and not _VARIABLE.match(name)):
            raise wrong("names of letters, digits and underscores")
        if isinstance(text, bool) or not isinstance(text, str | int | float | None):
            raise wrong(f"a text for {name}")
        if text is not None:
            check_text(str(text), wrong)
        found[name] = None if text is None else str(text)
    return found


def dashed(name: str) -> str:
    """An option as Slurm writes it."""
    return name.replace("_", "-")


def shortened(command: str) -> str:
    """A command's first 80 characters."""
    return command if len(command) <= 80 else command[:77] + "..."


def default_name(target: str) -> str:
    """A job name made from the target's name, in plain characters only."""
    stem = PurePath(target).stem
    kept = "".join(
        character if character.isascii() and (character.isalnum() or character in "._-") else "-" for character in stem
    ).strip("-.")
    return kept[:100] or "train"
