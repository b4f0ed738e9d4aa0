"""One input of the fuzzer: the words of a command line, the files that lie in its folder, and its standard input."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

OUTPUT = "out"
"""How the names of files start that a command is asked to write."""


class Case(NamedTuple):
    """What a person could have done in an empty folder."""

    reader: str
    words: tuple[str, ...]
    files: tuple[tuple[str, bytes], ...] = ()
    stdin: bytes = b""
    secret: str = ""
    """A token that was planted in a file, and must not be printed."""

    def lay_out(self, folder: Path) -> None:
        """Writes the files into the folder."""
        for name, data in self.files:
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)

    def named(self) -> tuple[str, ...]:
        """What names the files that may be read: the words, and the texts of messages on standard input."""
        if self.reader != "message":
            return self.words
        return (*self.words, *re.findall(r'"((?:[^"\\]|\\.)*)"', self.stdin.decode("utf-8", "replace")))

    def size(self) -> int:
        return sum(map(len, self.words)) + sum(len(data) for _, data in self.files) + len(self.stdin)

    def told(self) -> str:
        """The case as a person can replay it: one line for the words, one for each file that holds anything."""
        lines = [f"hcp {' '.join(_short(repr(word)) for word in self.words)}"]
        lines += [f"  {name}: {_short(repr(data), 1500)}" for name, data in self.files if data]
        if self.stdin:
            lines.append(f"  standard input: {_short(repr(self.stdin), 1500)}")
        return "\n".join(lines)


def _short(text: str, most: int = 300) -> str:
    return text if len(text) <= most else f"{text[: most - 60]}...({len(text)} in all)...{text[-40:]}"
