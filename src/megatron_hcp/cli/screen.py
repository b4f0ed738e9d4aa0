"""The only writer of output lines: nothing in a line can control the terminal or the CI that shows it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.ground.secrets import without_secrets
from megatron_hcp.ground.visible import visible


class Part(NamedTuple):
    """A piece of a line with its own colour, optionally bold."""

    text: str
    colour: str = ""
    bold: bool = False


Line = str | tuple[str | Part, ...]
"""One line of output, whatever its pieces contain."""


def say(lines: Iterable[Line], *, err: bool = False, commands: bool = False) -> None:
    """Prints the lines on standard output or standard error, with colours only on a terminal.

    `commands`: lines that start with `::` are commands for the CI runner that reads them.
    """
    write(shown_text(lines, err=err, commands=commands), err=err)


def shown_text(lines: Iterable[Line], *, err: bool = False, commands: bool = False) -> str:
    """The lines as `say` prints them here."""
    terminal = is_terminal(err)
    colours = terminal and "NO_COLOR" not in os.environ
    return "".join(safe_line(one, colours=colours, ascii=not terminal, commands=commands) + "\n" for one in lines)


def write(text: str, *, err: bool = False) -> None:
    """Writes what may be printed as it is."""
    if text:
        stream = sys.stderr if err else sys.stdout
        stream.write(text)
        stream.flush()


def how_shown() -> str:
    """What the form of a printed line depends on, beside the line: whether a terminal shows it, which one."""
    if not is_terminal():
        return "file"
    import shutil

    return f"terminal {'NO_COLOR' in os.environ} {shutil.get_terminal_size((100, 24)).columns}"


def is_terminal(err: bool = False) -> bool:
    """Whether the output goes to a terminal."""
    return (sys.stderr if err else sys.stdout).isatty() and os.environ.get("TERM") != "dumb"


def safe_text(lines: Iterable[Line], *, commands: bool = False) -> str:
    """The lines as they may be written to a file."""
    return "".join(safe_line(line, ascii=True, commands=commands) + "\n" for line in lines)


def safe_line(line: Line, *, colours: bool = False, ascii: bool = False, commands: bool = False) -> str:
    r"""The line as it may be printed: with visible characters only, without secrets, and not a CI command.

    >>> safe_line("::error ::x\n##[group]HF_TOKEN=abc")
    '\\x3a:error ::x\\n#\\x23[group]HF_TOKEN=***'
    """
    parts = [part if isinstance(part, Part) else Part(part) for part in ((line,) if isinstance(line, str) else line)]
    parts = [part._replace(text=visible(part.text)) for part in parts]
    plain = "".join(part.text for part in parts)
    safe = _disarmed(without_secrets(plain), commands)
    if colours and safe == plain:
        return "".join(_styled(part) for part in parts)
    return safe.replace("\u2026", "...") if ascii else safe


class ProgressLine:
    """A line on standard error that is rewritten in place, if that is a terminal; otherwise nothing.

    Args:
        first_s: seconds before the first text is shown.
        pause_s: seconds that a text stays at least.
    """

    def __init__(self, first_s: float = 0.0, pause_s: float = 0.0) -> None:
        self._is_shown = sys.stderr is not None and is_terminal(err=True)
        self._pause_s, self._next_s = pause_s, time.monotonic() + first_s
        self._text = ""

    def show(self, text: str) -> None:
        """Replaces the text, unless the one that is shown is too new."""
        if self._is_shown and text != self._text and (now := time.monotonic()) >= self._next_s:
            self._text, self._next_s = text, now + self._pause_s
            sys.stderr.write(f"\r\x1b[K{text}\r")
            sys.stderr.flush()

    def clear(self) -> None:
        """Leaves the line empty."""
        self._next_s = 0.0
        self.show("")


def _styled(part: Part) -> str:
    text, colour, bold = part
    import click

    return click.style(text, colour or None, bold=bold or None) if colour or bold else text


def _disarmed(line: str, commands: bool) -> str:
    """GitHub's runner obeys `::` at the start of a line, even indented; GitHub's and Azure's obey `##[` anywhere."""
    if "##" in line:
        line = line.replace("##[", "#\\x23[").replace("##vso[", "#\\x23vso[")
    if not commands and line.lstrip().startswith("::"):
        line = line.replace(":", "\\x3a", 1)
    return line
