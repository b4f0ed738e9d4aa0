"""Draws what `hcp` prints on a terminal: `python docs/terminal_picture.py OUT.svg check examples/mlm_broken.sh`."""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS = 100


def main(target: Path, words: list[str]) -> None:
    command = f"$ hcp {shlex.join(words)}\n"
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), color_system="standard", force_terminal=True)
    console.print(Text(command, style="bold"), end="")
    console.print(Text.from_ansi(printed([sys.executable, "-m", "hcp", *words])))
    picture = console.export_svg(title="", unique_id="hcp")
    picture = re.sub(r"@font-face {.*?}\s*", "", picture, flags=re.S)  # rich loads its fonts from the network
    fonts = 'ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace'
    target.write_text(picture.replace("Fira Code, monospace", fonts), encoding="utf-8")


def printed(command: list[str]) -> str:
    """What a command writes to a terminal."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm-256color"
        os.environ.pop("NO_COLOR", None)
        os.execv(command[0], command)
    output = b""
    try:
        while part := os.read(terminal, 65536):
            output += part
    except OSError:  # how a terminal says that its last program has ended
        pass
    os.waitpid(child, 0)
    os.close(terminal)
    return output.decode().replace("\r\n", "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
