"""Words of a job as a shell takes them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from megatron_hcp.launch.fact import Argument, RunText, is_date

LAUNCH_TIME = "launch_time"
"""The shell's variable for the second of which the dates in the launch's words are."""


def quoted(value: object) -> str:
    """A shell word. Commas are quoted too: bash does not need that, but shellcheck flags them in an array."""
    if isinstance(value, RunText):
        pairs = zip(value.parts, value.names, strict=True)
        return "".join(f'"{_at_run_time(part)}"' if name else quoted(part) for part, name in pairs if part)
    text = str(value)
    if not all(map(_is_shown, text)):  # printing the script must not send control characters to the terminal
        return f"$'{''.join(map(_escaped, text))}'"
    word = shlex.quote(text)
    return f"'{word}'" if "," in text and word == text else word


def dates_in(words: Iterable[Argument]) -> bool:
    """Whether a word holds a date: then the shell sets LAUNCH_TIME first, so that all are of one moment."""
    return any(is_date(part) for word in words if isinstance(word, RunText) for part in word.unknown)


def _at_run_time(name: str) -> str:
    if is_date(name):
        return name.replace("date", f'date -d "@${LAUNCH_TIME}"', 1)
    return f"${{{name}}}"


def _is_shown(letter: str) -> bool:
    return letter.isprintable() or letter in "\n\t"


def _escaped(letter: str) -> str:
    if _is_shown(letter):
        return f"\\{letter}" if letter in "\\'" else letter
    return "".join(f"\\x{byte:02x}" for byte in letter.encode())
