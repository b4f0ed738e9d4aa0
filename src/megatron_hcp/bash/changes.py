"""Files that a script writes before something reads them: what lies on the disk now is not what will be there."""

from __future__ import annotations

from posixpath import basename, normpath

from megatron_hcp.bash.assign import fields
from megatron_hcp.bash.paths import below
from megatron_hcp.bash.syntax import Command
from megatron_hcp.bash.value import Field, Value, text_of
from megatron_hcp.bash.walker import Walker

_IN_PLACE = {"sed": ("-i", "--in-place"), "yq": ("-i", "--inplace", "-yi"), "perl": ("-i", "-pi")}
_ONTO = ("cp", "mv", "install", "ln")
CHANGING = frozenset((*_IN_PLACE, *_ONTO, "tee"))
"""Commands that write to the files that they are given."""


def note_changes(w: Walker, node: Command) -> None:
    """Records the files that a command of `CHANGING` writes to."""
    items = [item for item in fields(w, node.words)[1:] if isinstance(item, Field)]
    options = [item.prefix for item in items if item.prefix.startswith("-")]
    files = [item.parts for item in items if not item.prefix.startswith("-")]
    if node.name in _IN_PLACE and not any(option.startswith(_IN_PLACE[node.name]) for option in options):
        return
    if node.name in _ONTO:
        folder = text_of(files[-1]) or "" if len(files) > 1 else ""
        source = basename((text_of(files[0]) or "").rstrip("/")) if len(files) > 1 else ""
        if source and (folder in (".", "..") or folder.endswith("/")):
            w.changed[normpath(folder + "/" + source)] = w.line(node)
        files = files[-1:]
    for file in files:
        note_change(w, file, w.line(node))


def note_change(w: Walker, file: Value, line: str) -> None:
    """Records that a file is written to, if its place is known as seen from the script's folder."""
    name = below(file) or text_of(file)
    if name and w.printed is None:
        w.changed[normpath(name)] = line
