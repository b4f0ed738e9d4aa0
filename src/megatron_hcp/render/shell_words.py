"""Words of a job as a shell takes them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

from megatron_hcp.launch.fact import OF_LAUNCH_TIME, Argument, RunText, at_launch_time, is_date

_NEW_EACH_TIME = r"(?<![\w/.-])(?:date|mktemp|uuidgen|RANDOM|EPOCH\w+)(?![\w/.-])"
"""Commands and variables, not parts of a path, that give something else each time."""


def quoted(value: object) -> str:
    """A shell word, whose `~/` at the start is the user's home.

    Commas are quoted too: bash does not need that, but shellcheck flags them in an array.
    """
    if isinstance(value, RunText) and value.splits:
        return "".join(
            part if not name or part.startswith("$(") else f"${{{part}}}" if part.isdecimal() else f"${part}"
            for part, name in zip(value.parts, value.names, strict=True)
        )
    if isinstance(value, RunText):
        pairs = zip(value.parts, value.names, strict=True)
        return "".join(f'"{_at_run_time(part)}"' if name else quoted(part) for part, name in pairs if part)
    text = str(value)
    if text[:2] == "~/":
        return f"~/{quoted(text[2:])}" if text[2:] else "~/"
    if not all(map(_is_shown, text)):  # printing the script must not send control characters to the terminal
        return f"$'{''.join(map(_escaped, text))}'"
    word = shlex.quote(text)
    return f"'{word}'" if "," in text and word == text else word


def dates_in(words: Iterable[Argument]) -> bool:
    """Whether a word holds a date: then the shell sets LAUNCH_TIME first, so that all are of one moment."""
    unknown = [part for word in words if isinstance(word, RunText) for part in word.unknown]
    return any(is_date(part) or OF_LAUNCH_TIME in part for part in unknown)


def is_new_each_time(word: Argument | None, outputs: Mapping[str, str]) -> bool:
    """Whether a word is another in each attempt, as far as the text of its dates and commands shows."""
    texts = [*word.unknown] if isinstance(word, RunText) else []
    for name, command in reversed([*outputs.items()]):  # a command reads only outputs of those before it
        if any(re.search(rf"\b{name}\b", text) for text in texts):
            texts.append(command)
    return any(re.search(_NEW_EACH_TIME, text) for text in texts if "$(" in text)


def _at_run_time(name: str) -> str:
    if is_date(name):
        return at_launch_time(name)
    return name if name.startswith("$(") else f"${{{name}}}"


def _is_shown(letter: str) -> bool:
    return letter.isprintable() or letter in "\n\t"


def _escaped(letter: str) -> str:
    if _is_shown(letter):
        return f"\\{letter}" if letter in "\\'" else letter
    return "".join(f"\\x{byte:02x}" for byte in letter.encode())
