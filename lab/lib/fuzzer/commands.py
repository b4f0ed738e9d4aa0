"""What reads the cases of a reader: the command line, or what a server or a job does with them in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Main = Callable[[list[str]], Any]


def _server() -> Main:
    from fuzzer import server

    import megatron_hcp.mcp.server  # noqa: F401  # its imports are no case's doing

    return server.main


def of_command_line() -> Main:
    from megatron_hcp.cli.main import main

    return main


def _own_reader(name: str) -> Callable[[], Main]:
    def reader() -> Main:
        from fuzzer import repositories

        main: Main = getattr(repositories, name)
        return main

    return reader


COMMANDS: dict[str, Callable[[], Main]] = {
    "message": _server,
    "editor": _own_reader("edited"),
    "spec": _own_reader("specified"),
}
"""By reader, what reads its cases where that is not the command line."""
