"""`hcp mcp`: serves the tools to an agent on standard input and output."""

from __future__ import annotations

import click

from megatron_hcp.ground.errors import HcpError


@click.command()
def mcp() -> None:
    """Serve check, plan, support, render, dcp, triage and explain to an agent, with rules and skills (extra [mcp]).

    An agent starts it and talks to it over the Model Context Protocol on standard input and output:

    \b
    claude mcp add hcp -- hcp mcp
    codex mcp add hcp -- hcp mcp
    gemini mcp add hcp hcp mcp
    """
    try:
        from megatron_hcp.mcp.server import serve
    except ModuleNotFoundError as error:
        raise HcpError(
            f"the Python package {error.name} is not installed",
            wanted="the extra [mcp]",
            do="run pip install '.[mcp]' in a checkout",
        ) from None
    serve()
