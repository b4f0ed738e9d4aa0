"""`hcp lsp`: serves an editor on standard input and output."""

from __future__ import annotations

import click

from megatron_hcp.ground.errors import HcpError


@click.command()
def lsp() -> None:
    """Serve an editor: findings as you type, explanations, fixes and keys (extra [lsp]).

    The editor starts it and talks to it over the Language Server Protocol on standard input and output. It reads what
    the editor has open and what `hcp check` reads beside it, and runs nothing.
    """
    try:
        from megatron_hcp.lsp.server import serve
    except ModuleNotFoundError as error:
        raise HcpError(
            f"the Python package {error.name} is not installed",
            wanted="the extra [lsp]",
            do="run pip install '.[lsp]' in a checkout",
        ) from None
    serve()
