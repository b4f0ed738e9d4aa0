"""What reads the cases of a reader: the command line, or what a server or a job does with them in this process."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

Main = Callable[[list[str]], Any]


def _server() -> Main:
    from fuzzer import server

    import megatron_hcp.mcp.server  # noqa: F401  # its imports are no case's doing

    return server.main


def of_command_line() -> Main:
    from megatron_hcp.cli.main import main

    return main


def _own_reader(module: str, name: str) -> Callable[[], Main]:
    def reader() -> Main:
        main: Main = getattr(import_module(f"fuzzer.{module}"), name)
        return main

    return reader


COMMANDS: dict[str, Callable[[], Main]] = {
    "message": _server,
    "editor": _own_reader("repositories", "edited"),
    "spec": _own_reader("repositories", "specified"),
    "dryrun": _own_reader("machine", "asked"),
    "doctor": _own_reader("machine", "examined"),
}
"""By reader, what reads its cases where that is not the command line."""
