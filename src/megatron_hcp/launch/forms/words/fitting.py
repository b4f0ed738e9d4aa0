"""Whether the words after an option are those that argparse takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Literal

from megatron_hcp.ground.record import NamedTuple

_COUNTS = {"?": (0, 1), "*": (0, None), "+": (1, None)}
_CALLED = {"int": "a whole number", "float": "a number", "bool": "true or false"}
_NUMERALS = {1: "one", 2: "two", 3: "three", 4: "four"}


class Misfit(NamedTuple):
    """Words that an option doesn't take: `word` is the first wrong one, "" if one is missing."""

    kind: Literal["switch", "surplus", "missing", "type", "choice", "excluded"]
    word: str
    wanted: str
    choices: tuple[str, ...] = ()


def misfit(takes: str, words: Sequence[str]) -> Misfit | None:
    """What argparse refuses of the words after an option; None if nothing, or if it can't be told.

    `takes` is `switch`, or the type of each word (`str`, `int`, `float`, `bool`; `other`: upstream's own function
    converts it), before it their number as in argparse's nargs if it isn't one, and after it the choices; or `unknown`.

    >>> misfit("switch", ["true"])
    Misfit(kind='switch', word='true', wanted='no value: it is a switch', choices=())
    >>> misfit("+int", ["2", "x"]).wanted, misfit("str|full|selective", ["all"]).wanted
    ('a whole number', 'full or selective')
    >>> misfit("2int", ["2"]).wanted, misfit("int", ["4", "8"]).word
    ('two values', '8')
    """
    return _misfit(takes.partition("^")[0], tuple(words))


@lru_cache(maxsize=10_000)
def _misfit(takes: str, words: tuple[str, ...]) -> Misfit | None:
    if takes == "switch":
        return Misfit("switch", words[0], "no value: it is a switch") if words else None
    if takes == "unknown" or any(map(_may_be_an_option, words)):
        return None
    count = takes[: len(takes) - len(takes.lstrip("?*+0123456789"))]
    kind, *choices = takes[len(count) :].split("|")
    least, most = _COUNTS[count] if count in _COUNTS else (int(count or 1),) * 2
    if len(words) < least:
        return Misfit("missing", "", "at least one value" if most is None else _numbered(least))
    for word in words[:most]:
        found = _wrong(kind, tuple(choices), word)
        if found is not None:
            return found
    if most is not None and len(words) > most:
        return Misfit("surplus", words[most], "at most one value" if least < most else _numbered(most))
    return None


def excluded_by(takes: str) -> list[str]:
    """The options that the parser doesn't allow beside this one.

    >>> excluded_by("int^kitchen_config_file"), excluded_by("int")
    (['kitchen_config_file'], [])
    """
    return takes.split("^")[1:]


def _wrong(kind: str, choices: tuple[str, ...], word: str) -> Misfit | None:
    try:
        value = _CONVERTED[kind](word) if kind in _CONVERTED else word
    except ValueError:
        return Misfit("type", word, _CALLED[kind])
    if choices and str(value) not in choices:
        *most, last = choices
        return Misfit("choice", word, f"{', '.join(most)} or {last}" if most else last, choices)
    return None


def _bool(word: str) -> bool:
    """As transformers' `string_to_bool`."""
    if word.lower() not in _BOOLEANS:
        raise ValueError(word)
    return word.lower() in _BOOLEANS[:5]


_CONVERTED: Mapping[str, Callable[[str], object]] = {"int": int, "float": float, "bool": _bool}
_BOOLEANS = ("yes", "true", "t", "y", "1", "no", "false", "f", "n", "0")


def _may_be_an_option(word: str) -> bool:
    """Whether argparse may take a word for an option: not `-1`, which is a number."""
    if word[:1] != "-":
        return False
    whole, _, fraction = word[1:].partition(".")
    return not (whole + fraction).isdecimal()


def _numbered(count: int) -> str:
    return "one value" if count == 1 else f"{_NUMERALS.get(count, count)} values"
