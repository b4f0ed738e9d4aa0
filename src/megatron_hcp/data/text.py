"""Reads lengths written as text: numbers, JSON, JSONL."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain, count
from typing import Any, BinaryIO

from megatron_hcp.data.sampling import MAX_LENGTH, MAX_SEQUENCES
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.numbers import whole_number

Line = tuple[int, str]
"""A line's number, and its text without surrounding whitespace."""
MAX_BYTES = 16_000_000
"""Maximum bytes of a line, or of an array not written line by line; a line may hold a million tokens."""
_MAX_OBJECTS = 500_000
"""Maximum objects in one JSON value; each takes about 200 bytes once read."""
_WORD = re.compile(r"[^\s,]+")
_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_STARTS = re.compile(rf"[+-]?[0-9][0-9_]*(?:[\s,]|$)|[\[{{]\s*(?:[\"\[\]{{}}]|$)|\[\s*{_NUMBER}\s*(?:,|\]?$)")
"""How lengths start: a number, or JSON; a log may start with [36m (a color), [2026-11-22 10:00:00], or [1234]."""
GUESSES = ("length", "seqlen", "seq_len", "num_tokens", "input_ids", "tokens")
"""Fields of a JSON object to try, in this order, if none is named."""


def lines_in(stream: BinaryIO, name: str) -> Iterator[Line]:
    """The non-blank lines, each with its number; read one at a time, so that a file may be larger than memory.

    Raises HcpError for a line of more than MAX_BYTES.
    """
    for number in count(1):
        line = stream.readline(MAX_BYTES + 1)
        if not line:
            return
        if len(line) > MAX_BYTES:
            raise _too_large(name, number)
        # Bytes that are not UTF-8 are reported where they occur, as not being a number.
        text = line.decode("utf-8-sig" if number == 1 else "utf-8", errors="surrogateescape").strip()
        if text:
            yield number, text


def is_of_lengths(line: str) -> bool:
    """Whether a file's first line starts a list of lengths: numbers or JSON.

    >>> is_of_lengths("1024 2048"), is_of_lengths('{"length": 7}'), is_of_lengths("[12, 5]")
    (True, True, True)
    >>> is_of_lengths("[rank0]: step:1 - ..."), is_of_lengths("[2026-11-22 10:00:00] INFO")
    (False, False)
    """
    return _STARTS.match(line) is not None


def lengths_in(lines: Iterator[Line], name: str, field: str | None = None) -> list[int]:
    """The lengths in these lines: numbers, one JSON array, or JSONL with a number, a list of tokens or an object each.

    Raises HcpError for anything else, naming its line.

    >>> lengths_in(iter([(1, "[4, 5]")]), "x"), lengths_in(iter([(1, '{"length": 7}'), (2, '{"length": 8}')]), "x")
    ([4, 5], [7, 8])
    """
    lengths = []
    for length in each_length(lines, name, field):
        lengths.append(length)
        if len(lengths) > MAX_SEQUENCES:
            raise HcpError(
                f"{name}: more than {MAX_SEQUENCES:,} sequences", do="plan one step at a time, as training does"
            )
    if not lengths:
        raise HcpError(f"{name}: found no sequence", wanted="their lengths, as numbers or as JSON")
    return lengths


def each_length(lines: Iterator[Line], name: str, field: str | None = None) -> Iterator[int]:
    """The same lengths one at a time, for any number of sequences."""
    for place, value in _values(lines, name):
        try:
            length = _length(value, field)
        except HcpError as error:
            if isinstance(place, str):
                raise error.within(place) from None
            error.at = (name, place)
            raise
        yield length


def _values(lines: Iterator[Line], name: str) -> Iterator[tuple[int | str, Any]]:
    """(line or place, value) of each sequence: an item of one JSON array, a line of JSONL, or a word."""
    number, first = next(lines, (0, ""))
    if first[:1] not in ("[", "{"):
        for at, line in chain([(number, first)], lines):
            yield from ((at, word[0]) for word in _WORD.finditer(line))
        return
    if first[:1] == "[":
        second = next(lines, None)
        rest = [second] if second is not None else []
        if second is None or not isinstance(_parsed(first), list):
            kept = [(number, first), *rest, *_held(lines, name, len(first))]
            whole = _parsed("\n".join(line for _, line in kept))
            if isinstance(whole, list) and not any(isinstance(item, list) for item in whole):
                yield from ((f"{name}: item {place}:", item) for place, item in enumerate(whole, 1))
                return
            (number, first), *rest = kept
        lines = chain(rest, lines)
    for at, line in chain([(number, first)], lines):
        value = _parsed(line)
        if value is None:
            raise HcpError(f"found {shown(line)}, not JSON", wanted="one JSON value per line", at=(name, at))
        yield at, value


def _held(lines: Iterator[Line], name: str, size: int) -> Iterator[Line]:
    """The lines of an array, which is held in memory as a whole."""
    for number, line in lines:
        size += len(line)
        if size > MAX_BYTES:
            raise _too_large(name)
        yield number, line


def _too_large(name: str, line: int | None = None) -> HcpError:
    place = "" if line else f"{name}: "
    return HcpError(
        f"{place}more than {MAX_BYTES:,} bytes in one piece",
        wanted="lengths",
        do="write one per line, as JSONL",
        at=(name, line) if line else None,
    )


def _parsed(text: str) -> Any:
    if text.count("{") + text.count("[") > _MAX_OBJECTS:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _length(value: Any, field: str | None) -> int:
    if isinstance(value, dict):
        value = _of_object(value, field)
    elif field is not None:
        raise HcpError(f"found {shown(value)}, which has no fields", wanted="JSON objects with --field, or drop it")
    if isinstance(value, list):
        return len(value)
    if isinstance(value, str):
        if re.fullmatch("0[0-9]+", value):  # half of a "1,024", which would be two sequences
            raise HcpError(f"found {shown(value)}", wanted="numbers without leading zeros: 1024, not 1,024")
        number = whole_number(value)
        value = value if number is None else number
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_LENGTH:
        raise HcpError(
            f"found {shown(value)}",
            wanted=f"the length of a sequence, a whole number from 1 to {MAX_LENGTH:,}",
        )
    return value


def _of_object(value: dict[str, Any], field: str | None) -> Any:
    if field is not None:
        if field not in value:
            raise HcpError(f"has no field '{field:.40}'; it has {_names(value)}")
        return value[field]
    known = next((name for name in GUESSES if name in value), None)
    if known is None:
        raise HcpError(
            f"found the fields {_names(value)}",
            wanted=f"a length, such as {GUESSES[0]}",
            do="name the one that holds it, or the tokens, with --field",
        )
    return value[known]


def _names(value: dict[str, Any]) -> str:
    return ", ".join(name[:40] for name in list(value)[:8]) or "none"


def shown(value: Any) -> str:
    """What was found, shortened and quoted for a message."""
    text = (
        value
        if isinstance(value, str)
        else type(value).__name__
        if isinstance(value, dict | list)
        else json.dumps(value)
    )
    return repr(text if len(text) <= 40 else text[:37] + "...")
