"""Writes a man page for every command: `python lab release/man FOLDER`, then `man -l FOLDER/hcp-check.1`."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from click_man.core import write_man_pages  # type: ignore[import-untyped]
from program import parser_of

from megatron_hcp import __version__
from megatron_hcp.cli.main import cli


def write(folder: Path) -> list[Path]:
    """Writes the pages into a folder, which is made if need be; their paths, sorted."""
    folder.mkdir(parents=True, exist_ok=True)
    context = click.Context(cli, info_name="hcp")
    loaded = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    commands = {name: command for name, command in loaded.items() if command is not None}
    group = click.Group("hcp", commands=commands, help=cli.help, params=cli.params)
    write_man_pages("hcp", group, version=__version__, target_dir=str(folder))
    return sorted(folder.glob("hcp*.1"))


def main(words: list[str]) -> int:
    """The program."""
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args(words)
    print(f"{len(write(given.folder))} pages in {given.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
