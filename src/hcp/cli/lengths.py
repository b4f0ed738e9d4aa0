"""Reads the lengths of sequences as people have them: a list, a file of numbers, JSON, JSONL, or standard input."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from io import BytesIO
from itertools import chain, count
from typing import Any, BinaryIO

from hcp.core.errors import HcpError
from hcp.core.intake import open_input
from hcp.core.numbers import whole_number

MAX_SEQUENCES = 1_000_000
MAX_BYTES = 16_000_000
"""Of a line, or of an array that is not written line by line: a line may hold a million tokens."""
_MAX_OBJECTS = 500_000
"""In one JSON value: each takes some 200 bytes once it is read."""
_WORD = re.compile(r"[^\s,]+")
GUESSES = ("length", "seqlen", "seq_len", "num_tokens", "input_ids", "tokens")
"""Fields of a JSON object that are tried, in this order, where none is named."""


def read_lengths(source: str, field: str | None = None) -> list[int]:
    """The lengths that `source` names.

    Args:
        source: `-` (standard input), numbers such as `1024,2048`, or a file.
        field: of a JSON object, what holds its length: a number, or a list whose length counts.

    A file or standard input holds numbers between spaces, commas or line ends, a JSON array, or JSONL with a number, a
    list of tokens or an object per line. It is read line by line, so that it may be larger than the memory.

    Raises:
        HcpError: nothing can be read; names the line, what it holds and what was wanted.
    """
    if source.strip("0123456789,_ ") == "" and source.strip():
        return lengths_of_text(source, "--lengths", field)
    try:
        if source == "-":
            if sys.stdin is None:
                raise HcpError("--lengths -: standard input is closed; wanted lengths on it; name a file")
            return _lengths(sys.stdin.buffer, "-", field)
        with open_input(source) as file:
            return _lengths(file, source, field)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is no UTF-8 text"
        raise HcpError(
            f"--lengths {source:.80}: cannot be read ({reason}); wanted a file, -, or numbers such as 1024,2048"
        ) from None


def lengths_of_text(text: str, name: str, field: str | None = None) -> list[int]:
    """The lengths in a text; `name` is what errors call it.

    >>> lengths_of_text("[4, 5]", "x"), lengths_of_text('{"length": 7}\\n{"length": 8}', "x")
    ([4, 5], [7, 8])
    """
    return _lengths(BytesIO(text.encode()), name, field)


def _lengths(stream: BinaryIO, name: str, field: str | None) -> list[int]:
    lengths = []
    for place, value in _values(stream, name):
        lengths.append(_length(value, place, field))
        if len(lengths) > MAX_SEQUENCES:
            raise HcpError(f"{name}: more than {MAX_SEQUENCES:,} sequences; plan them step by step, as training does")
    if not lengths:
        raise HcpError(f"{name}: found no sequence; wanted their lengths, as numbers or as JSON")
    return lengths


def _values(stream: BinaryIO, name: str) -> Iterator[tuple[str, Any]]:
    """(place, value) of each sequence: an item of one JSON array, a line of JSONL, or a word."""
    lines = _lines(stream, name)
    number, first = next(lines, (0, ""))
    if first[:1] not in ("[", "{"):
        for at, line in chain([(number, first)], lines):
            yield from ((f"{name}:{at}", word[0]) for word in _WORD.finditer(line))
        return
    if first[:1] == "[":
        second = next(lines, None)
        rest = [second] if second is not None else []
        if second is None or not isinstance(_parsed(first), list):
            kept = [(number, first), *rest, *_held(lines, name, len(first))]
            whole = _parsed("\n".join(line for _, line in kept))
            if isinstance(whole, list) and not any(isinstance(item, list) for item in whole):
                yield from ((f"{name}: item {place}", item) for place, item in enumerate(whole, 1))
                return
            (number, first), *rest = kept
        lines = chain(rest, lines)
    for at, line in chain([(number, first)], lines):
        value = _parsed(line)
        if value is None:
            raise HcpError(f"{name}:{at}: found {_shown(line)}, no JSON; wanted one JSON value per line")
        yield f"{name}:{at}", value


def _lines(stream: BinaryIO, name: str) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, each with its number."""
    for number in count(1):
        line = stream.readline(MAX_BYTES + 1)
        if not line:
            return
        if len(line) > MAX_BYTES:
            raise _too_large(f"{name}:{number}")
        text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        if text:
            yield number, text


def _held(lines: Iterator[tuple[int, str]], name: str, size: int) -> Iterator[tuple[int, str]]:
    """The lines of an array, which is held as a whole."""
    for number, line in lines:
        size += len(line)
        if size > MAX_BYTES:
            raise _too_large(name)
        yield number, line


def _too_large(place: str) -> HcpError:
    return HcpError(
        f"{place}: more than {MAX_BYTES:,} bytes in one piece; wanted lengths; write one per line, as JSONL"
    )


def _parsed(text: str) -> Any:
    if text.count("{") + text.count("[") > _MAX_OBJECTS:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _length(value: Any, place: str, field: str | None) -> int:
    if isinstance(value, dict):
        value = _of_object(value, place, field)
    if isinstance(value, list):
        return len(value)
    if isinstance(value, str):
        number = whole_number(value)
        value = value if number is None else number
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise HcpError(f"{place}: found {_shown(value)}; wanted the length of a sequence, a whole number of at least 1")
    return value


def _of_object(value: dict[str, Any], place: str, field: str | None) -> Any:
    if field is not None:
        if field not in value:
            raise HcpError(
                f"{place}: has no field {field!r}; it has {', '.join(name[:40] for name in list(value)[:8]) or 'none'}"
            )
        return value[field]
    known = next((name for name in GUESSES if name in value), None)
    if known is None:
        raise HcpError(
            f"{place}: has none of the fields {', '.join(GUESSES)}; name the one that holds the length with --field"
        )
    return value[known]


def _shown(value: Any) -> str:
    text = (
        value
        if isinstance(value, str)
        else type(value).__name__
        if isinstance(value, dict | list)
        else json.dumps(value)
    )
    return repr(text if len(text) <= 40 else text[:37] + "...")
