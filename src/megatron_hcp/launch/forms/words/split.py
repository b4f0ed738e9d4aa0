"""A text's words with shell quoting, each with the location of its value."""

from __future__ import annotations

from collections.abc import Iterable

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.place import Location
from megatron_hcp.launch.forms.words.settings import Word

MAX_CHARACTERS = 300_000
_OPEN, _CLOSE = "[{(", "]})"


def split_words(text: str, file: str) -> list[Word]:
    """The words of a text; `#` starts a comment, brackets keep spaces together.

    A word's location is that of its value if it has one (`key=VALUE`), quotes included.

    Raises:
        HcpError: an unclosed quote, or more than `MAX_CHARACTERS`.
    """
    if len(text) > MAX_CHARACTERS:
        raise HcpError(
            f"{file} has {len(text):,} characters",
            wanted=f"overrides of at most {MAX_CHARACTERS:,}",
            do="name the launch file, not a log",
        )
    words: list[Word] = []
    for number, line in _joined_lines(text):
        words += _words_of_line(line, number, file)
    return words


def _joined_lines(text: str) -> Iterable[tuple[int, str]]:
    """(line number, line); a backslash at the end joins a line with the next, but the parts stay separate lines."""
    for number, line in enumerate(text.replace("\r\n", " \n").split("\n"), 1):
        yield number, line[:-1] if line.endswith("\\") and not line.endswith("\\\\") else line


def _words_of_line(line: str, number: int, file: str) -> list[Word]:
    words: list[Word] = []
    parts: list[str] = []
    start = value = depth = 0
    at = 0
    inside = False

    def close(end: int) -> None:
        nonlocal inside
        if inside:
            words.append(Word("".join(parts), Location(file, number, (value or start) + 1, number, end + 1)))
        inside = False
        parts.clear()

    while at < len(line):
        character = line[at]
        if not inside:
            if character.isspace():
                at += 1
                continue
            if character == "#":
                break
            inside, start, value, depth = True, at, 0, 0
        if character in "'\"":
            end = _quote_end(line, at)
            if end is None:
                raise HcpError(
                    f"the quote {character} is not closed", wanted="key=value", do="close it", at=(file, number, at + 1)
                )
            quoted = line[at + 1 : end]
            parts.append(quoted.replace('\\"', '"') if character == '"' else quoted)
            at = end + 1
            continue
        if character == "\\" and at + 1 < len(line):
            parts.append(line[at + 1])
            at += 2
            continue
        if character.isspace() and depth <= 0:
            close(at)
            at += 1
            continue
        depth += (character in _OPEN) - (character in _CLOSE)
        if character == "=" and not value:
            value = at + 1
        parts.append(character)
        at += 1
    close(len(line.rstrip()) if depth > 0 else at)
    return words


def _quote_end(line: str, start: int) -> int | None:
    at = start + 1
    while at < len(line):
        if line[at] == "\\" and line[start] == '"':
            at += 2
            continue
        if line[at] == line[start]:
            return at
        at += 1
    return None
