"""Validates plain data against a table of shapes: each wrong value by its path, with what was found and wanted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.visible import visible

_SHOWN = 60
_MOST_FAULTS = 8
_MOST_NAMES = 12


class Leaf(NamedTuple):
    """A value without parts: what is wanted, in words, and a test for it."""

    wanted: str
    holds: Callable[[Any], bool]


class ListOf(NamedTuple):
    item: Shape
    wanted: str = "a list"
    least: int = 0


class MapOf(NamedTuple):
    """A mapping with any names as keys."""

    value: Shape
    wanted: str = "a mapping"
    least: int = 0


class Fields(NamedTuple):
    """A mapping with these keys. A key that may be absent may be null as well; `others`: unknown keys are allowed."""

    required: Mapping[str, Shape] = {}
    optional: Mapping[str, Shape] = {}
    others: bool = False


Shape = Leaf | ListOf | MapOf | Fields


def is_text(value: Any) -> bool:
    """Whether a value is a non-blank text that a program can take as an argument."""
    return isinstance(value, str) and bool(value.strip()) and "\0" not in value


def one_of(choices: Collection[str]) -> Leaf:
    """One of these words."""
    return Leaf(f"one of {', '.join(choices)}", lambda value: isinstance(value, str) and value in choices)


def whole(least: int, most: int) -> Leaf:
    """A whole number between the two, both included."""
    return Leaf(
        f"a whole number from {least} to {most}",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most,
    )


ANY = Leaf("anything", lambda value: True)
TEXT = Leaf("text", is_text)
STRING = Leaf("text, or an empty one", lambda value: isinstance(value, str) and "\0" not in value)
TEXTS = ListOf(TEXT, "a list of texts")
SCALAR = Leaf("text or a number", lambda value: is_text(value) or is_number(value))


def is_number(value: Any) -> bool:
    """Whether a value is a number that a float can hold.

    >>> is_number(1.5), is_number(True), is_number(float("inf")), is_number(10**400)
    (True, False, False, False)
    """
    most = sys.float_info.max
    return isinstance(value, int | float) and not isinstance(value, bool) and -most <= value <= most


def faults(value: Any, shape: Shape, path: str = "") -> Iterator[HcpError]:
    """Each wrong value as `verify[0].level: found 'x'; wanted …`, in the data's order; at the top the path is empty."""
    if isinstance(shape, Leaf):
        if not shape.holds(value):
            yield wrong(path, value, shape.wanted)
    elif isinstance(shape, ListOf):
        if not isinstance(value, list) or len(value) < shape.least:
            yield wrong(path, value, shape.wanted)
        else:
            for index, item in enumerate(value):
                yield from faults(item, shape.item, f"{path}[{index}]")
    elif not isinstance(value, dict):
        yield wrong(path, value, shape.wanted if isinstance(shape, MapOf) else "a mapping")
    elif isinstance(shape, MapOf):
        if len(value) < shape.least:
            yield wrong(path, value, shape.wanted)
        for name, item in value.items():
            yield from faults(item, shape.value, _below(path, name))
    else:
        yield from _fields(value, shape, path)


def _fields(value: Mapping[str, Any], shape: Fields, path: str) -> Iterator[HcpError]:
    for name, part in shape.required.items():
        if name not in value:
            wanted = "a mapping" if isinstance(part, Fields) else part.wanted
            yield HcpError(f"{_below(path, name)}: found nothing", wanted=wanted)
    known = {**shape.required, **shape.optional}
    for name, item in value.items():
        part = known.get(name, ANY)
        if name not in known and not shape.others:
            yield HcpError(f"{_below(path, name)}: found an unknown key", wanted=_near(name, known))
        elif item is not None or name in shape.required:
            yield from faults(item, part, _below(path, name))


def checked(value: Any, shape: Shape, file: str, line: int | None = None) -> None:
    """Returns if the data, of a file or of one line of it, has the shape.

    Raises:
        HcpError: it doesn't; the first eight errors in one line.
    """
    refuse(list(faults(value, shape)), file, line)


def refuse(found: list[HcpError], file: str, line: int | None = None) -> None:
    """Raises the errors, if there are any, as one line: what the first wanted, and then the others."""
    if found:
        first, *others = found[:_MOST_FAULTS]
        more = f"; and {len(found) - _MOST_FAULTS} more" if len(found) > _MOST_FAULTS else ""
        wanted = "; ".join([first.wanted, *map(str, others)]) + more
        if line is not None:
            raise HcpError(first.found, wanted=wanted, do="correct the file", at=(visible(file), line))
        raise HcpError(f"{visible(file)}: {first.found}", wanted=wanted, do="correct the file")


def wrong(path: str, value: Any, wanted: str) -> HcpError:
    """One error: where, what was found, what is wanted."""
    found = "an empty list" if value == [] else "an empty mapping" if value == {} else None
    if found is None:
        found = visible(repr(value))
        found = found if len(found) <= _SHOWN else found[: _SHOWN - 3] + "..."
    return HcpError(f"{path or 'the top level'}: found {found}", wanted=wanted)


def _below(path: str, name: Any) -> str:
    name = visible(str(name))[:_SHOWN]
    return f"{path}.{name}" if path else name


def _near(name: str, known: Collection[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(str(name)[:_SHOWN], known, n=1)
    if near:
        return f"a known one, did you mean {near[0]}?"
    return f"only {', '.join(known)}" if len(known) <= _MOST_NAMES else "a known one"
