"""Commands that only set up the software of a shell, which a job repeats: modules, environments, files nobody reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from megatron_hcp.bash.state import PWD
from megatron_hcp.bash.value import Hole, Span, text_of
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.ground.secrets import is_secret_name, without_secrets

if TYPE_CHECKING:
    from megatron_hcp.bash.walker import Walker

_HOOK = (
    r"\$\([\w./~${}-]*(?:conda|mamba|micromamba) (?:info --base|shell\.(?:bash|posix) hook|"
    r"shell hook (?:-s|--shell)[ =](?:bash|posix))(?: 2> ?/dev/null)?\)"
)
"""What conda and its kin print for the shell that asks: a folder, or the definition of `conda activate`."""
_WORD = rf'(?:[\w./+=:@%~-]|\$\w+|\$\{{\w+\}}|"|{_HOOK})+'
_SHAPE = re.compile(
    rf"(?:(?:module|ml|source|\.) {_WORD}(?: {_WORD})*|(?:conda|mamba|micromamba) (?:de)?activate(?: {_WORD})*|"
    rf'ulimit(?: [\w-]+)+|eval "?{_HOOK}"?)'
)
"""No word that starts another program, writes a file, or is split: only these may stand in the job as they are."""
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_PLAIN = re.compile(r"[\w./+=:@%-]*")
_LONGEST = 400


class SetupLine(NamedTuple):
    """`text`: the command with what the script set before; "" if the job can't have it. `written`: as it stands."""

    text: str
    written: str
    span: Span


def setup_line(w: Walker, span: Span) -> SetupLine:
    """A command that sets up the software of its shell, as a job can repeat it."""
    written = " ".join(span[0].data[span[1] : span[2]].decode("utf-8", "replace").split())
    is_one = len(written) < _LONGEST and without_secrets(written) == written and written.count('"') % 2 == 0
    return SetupLine(_carried(w, written) if is_one and _SHAPE.fullmatch(written) else "", written, span)


def _carried(w: Walker, written: str) -> str:
    """A command with the values of the script's own variables; those from outside are the job's too."""
    for match in _VARIABLE.finditer(written):
        name = match[1] or match[2]
        if is_secret_name(name) or name.isdecimal():
            return ""
        if name in w.vars or name in w.told:
            value = text_of(w.lookup(name, w.here)[0])
            if value is None or not _PLAIN.fullmatch(value):
                return ""
            written = written.replace(match[0], value) if match[1] else re.sub(rf"\${name}\b", value, written)
    command, _, path = written.partition(" ")
    place = w.lookup(PWD, w.here)[0]
    is_there = len(place) == 1 and isinstance(place[0], Hole) and place[0].below == "."
    if command in ("source", ".") and not is_there and re.match(r'"?[\w.]', path) and not path.startswith("activate"):
        folder = text_of(place) or ""
        quote = path[: path[0] == '"']
        path = f"{quote}{folder}/{path.removeprefix(quote)}" if _PLAIN.fullmatch(folder) and folder[:1] == "/" else ""
    return f"{command} {path}" if path else ""
