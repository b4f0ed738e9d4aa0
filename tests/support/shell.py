"""Scripts as `megatron_hcp.bash` follows them, and as bash itself runs them."""

from __future__ import annotations

import shutil
import subprocess

from megatron_hcp.bash.parser.script import parse
from megatron_hcp.bash.statements import STATEMENTS
from megatron_hcp.bash.value import Items, ScriptText, Span
from megatron_hcp.bash.walker import Prefix, Status, Walker
from support.processes import HANG_S

BASH = shutil.which("bash")


def followed(text: str, name: str = "x.sh") -> tuple[Walker, list[Items]]:
    """A script as it is followed, and the words of those commands that the shell itself does not know."""
    commands: list[Items] = []

    def on_command(walker: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
        commands.append(items)
        walker.found += 1
        return None

    walker = Walker(parse(ScriptText(text.encode(), name)), STATEMENTS, on_command, lambda name, span: None)
    walker.walk()
    return walker, commands


def run_in_bash(script: str, stub: str, **environment: str) -> list[str]:
    """What bash prints, up to each NUL. Only for scripts that start nothing: `stub` stands in for the programs."""
    assert BASH is not None
    variables = {"PATH": "/nonexistent", **environment}
    done = subprocess.run([BASH, "-c", f"{stub}\n{script}"], capture_output=True, timeout=HANG_S, env=variables)
    return done.stdout.decode().split("\0")[:-1]
