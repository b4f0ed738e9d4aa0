"""Pictures of the documentation: what `hcp` draws itself (`--svg`), or a terminal with what it prints, as SVG.

    python docs/site/terminal_picture.py

writes all of them anew; docs/pictures/commands.txt has the command of each.
"""

from __future__ import annotations

import html
import os
import pty
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 104
_CHAR, _LINE, _EDGE = 7.83, 18, 14
"""Width of a letter, height of a line and the margin, in pixels at a font of 13 px."""
_COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "36": "#79c0ff"}
_STYLE = re.compile(r"\x1b\[([0-9;]*)m")


def commands() -> dict[str, str]:
    """Name of a picture -> its command."""
    lines = (PICTURES / "commands.txt").read_text(encoding="utf-8").splitlines()
    rows = (line.partition(": ") for line in lines if line and not line.startswith("#"))
    return {name: command for name, _, command in rows}


def picture(command: str) -> str:
    """The SVG of a command line: `hcp … --svg FILE`, or `hcp …` with or without `| head -n N` behind it."""
    words = shlex.split(command)
    assert words[0] == "hcp", command
    with tempfile.TemporaryDirectory() as folder:
        for place in ("examples", "tests/triage/dead_job.log"):
            os.symlink(ROOT / place, Path(folder, Path(place).name))
        if "--svg" in words:
            subprocess.run(_hcp(words[1:]), cwd=folder, env=_env(), check=True, stdout=subprocess.DEVNULL)
            return Path(folder, words[words.index("--svg") + 1]).read_text(encoding="utf-8")
        limit = int(words[-1]) if words[-4:-1] == ["|", "head", "-n"] else None
        lines = on_a_terminal(_hcp(words[1:-4] if limit else words[1:]), folder).removesuffix("\n").split("\n")
    return terminal_svg(command, lines[:limit])


def _hcp(words: list[str]) -> list[str]:
    return [sys.executable, "-m", "hcp", *words]


def _env() -> dict[str, str]:
    """A terminal of `COLUMNS` letters with colours, and the hcp of this checkout."""
    env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "LINES")}
    return env | {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "PYTHONPATH": str(ROOT / "src")}


def on_a_terminal(command: list[str], folder: str) -> str:
    """What a command of hcp prints on a terminal, colours included."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, cwd=folder, env=_env(), stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # how Linux says that nobody has the other end open
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    text = b"".join(parts).decode().replace("\r\n", "\n")
    assert process.wait() in (0, 1, 4), text
    return text


def terminal_svg(command: str, lines: list[str]) -> str:
    """A terminal with a command and what it printed, as SVG; lines that are too long are broken as a terminal does."""
    rows: list[list[tuple[str, str]]] = [[(f"$ {command}"[start : start + COLUMNS], "bold")]
                                         for start in range(0, len(command) + 2, COLUMNS)]  # fmt: skip
    for line in lines:
        rows += _broken(list(_runs(line)))
    width, height = round(COLUMNS * _CHAR + 2 * _EDGE), len(rows) * _LINE + 2 * _EDGE
    return "\n".join((
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' role="img" aria-label="{html.escape(command)}">',
        f'<rect width="{width}" height="{height}" rx="8" fill="#16181b"/>',
        '<g font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="13" fill="#d7dadf">',
        *_texts(rows),
        "</g>",
        "</svg>",
        "",
    ))  # fmt: skip


def _runs(line: str) -> Iterator[tuple[str, str]]:
    """(text, style) of each piece of a line; a style is the codes of the escape before it."""
    style = ""
    shown = re.split(r"\r|\x1b\[K", line)[-1]  # what was there before was progress, which the line replaces
    for number, piece in enumerate(_STYLE.split(shown)):
        if number % 2:
            style = "" if piece in ("", "0") else f"{style};{piece}"
        elif piece:
            assert piece.isprintable(), repr(piece)
            yield piece, style


def _broken(runs: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    rows: list[list[tuple[str, str]]] = [[]]
    room = COLUMNS
    for text, style in runs:
        while text:
            if not room:
                rows.append([])
                room = COLUMNS
            rows[-1].append((text[:room], style))
            text, room = text[room:], room - min(room, len(text))
    return rows


def _texts(rows: list[list[tuple[str, str]]]) -> Iterator[str]:
    for number, row in enumerate(rows):
        column = 0
        for text, style in row:
            if text.strip():
                codes = style.split(";")
                colour = next((f' fill="{_COLOURS[code]}"' for code in codes if code in _COLOURS), "")
                weight = ' font-weight="bold"' if {"1", "bold"} & set(codes) else ""
                x, y = _EDGE + column * _CHAR, _EDGE + number * _LINE + 13
                yield (
                    f'<text x="{x:.1f}" y="{y}" textLength="{len(text) * _CHAR:.1f}" xml:space="preserve"'
                    f"{colour}{weight}>{html.escape(text)}</text>"
                )
            column += len(text)


def main() -> int:
    for name, command in commands().items():
        (PICTURES / name).write_text(picture(command), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
