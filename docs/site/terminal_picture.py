"""Pictures of the documentation: what `hcp` draws itself (`--svg`), or a terminal with what it prints, as SVG.

    python docs/site/terminal_picture.py

writes all of them anew; docs/pictures/commands.txt has the command of each.
"""

from __future__ import annotations

import html
import io
import os
import pty
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 110
_SCALE = 0.65
"""rich draws letters of 20 px; this makes them 13."""


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
    return [sys.executable, "-m", "megatron_hcp", *words]


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
    """A terminal with a command and what it printed, as SVG."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=COLUMNS, file=io.StringIO(), color_system="standard", force_terminal=True)
    console.print(Text(f"$ {command}", style="bold"))
    for line in lines:
        shown = re.split(r"\r|\x1b\[K", line)[-1]  # what was there before was progress, which the line replaces
        console.print(Text.from_ansi(shown))
    svg = console.export_svg(title="", unique_id="terminal")
    svg = re.sub(r"@font-face {.*?}\s*", "", svg, flags=re.S)  # rich loads its font from the network
    svg = svg.replace("Fira Code, monospace", 'ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace')
    width, height = re.findall(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"', svg)[0]
    size = f'width="{float(width) * _SCALE:.0f}" height="{float(height) * _SCALE:.0f}" role="img"'
    return svg.replace("<svg ", f'<svg {size} aria-label="{html.escape(command)}" ', 1)


def main() -> int:
    for name, command in commands().items():
        (PICTURES / name).write_text(picture(command), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
