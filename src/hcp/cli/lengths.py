"""Reads the lengths of sequences as people have them: a list, a file of numbers, JSON, JSONL, or standard input."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hcp.core.errors import HcpError

MAX_SEQUENCES = 1_000_000
GUESSES = ("length", "seqlen", "seq_len", "num_tokens", "input_ids", "tokens")
"""Fields of a JSON object that are tried, in this order, where none is named."""


def read_lengths(source: str, field: str | None = None) -> list[int]:
    """The lengths that `source` names.

    Args:
        source: `-` (standard input), numbers such as `1024,2048`, or a file.
        field: of a JSON object, what holds its length: a number, or a list whose length counts.

    A file or standard input holds numbers between spaces, commas or line ends, a JSON array, or JSONL with a number, a
    list of tokens or an object per line.

    Raises:
        HcpError: nothing can be read; names the line, what it holds and what was wanted.
    """
    if source == "-":
        return lengths_of_text(sys.stdin.read(), "-", field)
    if source.strip("0123456789,_ ") == "" and source.strip():
        return lengths_of_text(source, "--lengths", field)
    try:
        text = Path(source).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is no UTF-8 text"
        raise HcpError(
            f"--lengths {source:.80}: cannot be read ({reason}); wanted a file, -, or numbers such as 1024,2048"
        ) from None
    return lengths_of_text(text, source, field)


def lengths_of_text(text: str, name: str, field: str | None = None) -> list[int]:
    """The lengths in a text; `name` is what errors call it.

    >>> lengths_of_text("[4, 5]", "x"), lengths_of_text('{"length": 7}\\n{"length": 8}', "x")
    ([4, 5], [7, 8])
    """
    lengths = []
    for place, value in _values(text, name):
        lengths.append(_length(value, place, field))
        if len(lengths) > MAX_SEQUENCES:
            raise HcpError(f"{name}: more than {MAX_SEQUENCES:,} sequences; plan them step by step, as training does")
    if not lengths:
        raise HcpError(f"{name}: found no sequence; wanted their lengths, as numbers or as JSON")
    return lengths


def _values(text: str, name: str) -> Iterator[tuple[str, Any]]:
    """(place, value) of each sequence: an item of one JSON array, a line of JSONL, or a word."""
    head = text.lstrip()[:1]
    if head == "[":
        whole = _parsed(text)
        if isinstance(whole, list) and not any(isinstance(item, list) for item in whole):
            yield from ((f"{name}: item {number}", item) for number, item in enumerate(whole, 1))
            return
    if head in ("[", "{"):
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                value = _parsed(line)
                if value is None:
                    raise HcpError(f"{name}:{number}: found {_shown(line)}, no JSON; wanted one JSON value per line")
                yield f"{name}:{number}", value
        return
    for number, line in enumerate(text.splitlines(), 1):
        yield from ((f"{name}:{number}", word) for word in line.replace(",", " ").split())


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _length(value: Any, place: str, field: str | None) -> int:
    if isinstance(value, dict):
        value = _of_object(value, place, field)
    if isinstance(value, list):
        return len(value)
    if isinstance(value, str):
        word = value.replace("_", "")
        value = int(word) if word.isdecimal() and len(word) < 20 else value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise HcpError(f"{place}: found {_shown(value)}; wanted the length of a sequence, a whole number of at least 1")
    return value


def _of_object(value: dict[str, Any], place: str, field: str | None) -> Any:
    if field is not None:
        if field not in value:
            raise HcpError(f"{place}: has no field {field!r}; it has {', '.join(map(str, list(value)[:8])) or 'none'}")
        return value[field]
    known = next((name for name in GUESSES if name in value), None)
    if known is None:
        raise HcpError(
            f"{place}: has none of the fields {', '.join(GUESSES)}; name the one that holds the length with --field"
        )
    return value[known]


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return repr(text if len(text) <= 40 else text[:37] + "...")
