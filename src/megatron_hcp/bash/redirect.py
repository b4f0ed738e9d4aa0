"""Statements with redirections: here-documents used as input, and texts written to files that the script runs later;
and the files that other commands write to: what lies on the disk now is not what will be there."""

from __future__ import annotations

import re
from functools import partial
from posixpath import basename, normpath

from megatron_hcp.bash.assign import fields
from megatron_hcp.bash.expand import value
from megatron_hcp.bash.paths import below, seen_from_folder
from megatron_hcp.bash.reason import ByVariable, WhyUnknown
from megatron_hcp.bash.syntax import Command, Pipeline, Redirected, Statement
from megatron_hcp.bash.value import Field, Hole, Lit, OneOf, Value, text_of
from megatron_hcp.bash.walker import Status, Walker

_IN_PLACE, _EDITS = ("sed", "yq", "perl"), re.compile(r"-[A-Za-z]*i|--in-?place").match
_ONTO = ("cp", "mv", "install", "ln")
_REMOVE = ("rm", "rmdir")
CHANGING = frozenset((*_IN_PLACE, *_ONTO, *_REMOVE, "tee", "mkdir"))
"""Commands that write to the files that they are given, make folders or remove them."""


def redirected(w: Walker, node: Redirected) -> Status:
    """A statement with a here-document: as its input, or written to a file that the script may run later."""
    outer = w.stdin
    if node.stdin is not None:
        w.stdin = value(w, node.stdin)
    outputs = []
    for output in (value(w, word) for word in node.outputs):
        note_change(w, output, w.line(node))
        if (text := text_of(output)) is not None:
            outputs.append(text)
    _write(w, node, outputs)
    status = None
    if node.statement is not None and not (w.printed is not None and "2" in outputs):
        if w.printed is not None and w.stdin is not None and w.text(node.statement) == "cat" and not node.following:
            w.printed += w.stdin
        else:
            status = w.run(node.statement)
    w.stdin = written(w, node.statement) if node.following else None
    for statement in node.following:
        if isinstance(statement, Pipeline):
            w.subshell(partial(w.block, statement.statements))
        elif w.printed is None:
            w.either(
                [partial(w.run, statement), bool],
                WhyUnknown("depends on the command before it").of_branch(),
                w.span(statement),
            )
    w.stdin = outer
    return status


def _write(w: Walker, node: Redirected, outputs: list[str]) -> None:
    """What is written to the files. `2` is standard error."""
    if w.printed is not None:
        w.spoiled = w.spoiled or not all(output in ("2", "/dev/null") for output in outputs)
        return
    text = written(w, node.statement) if outputs else None
    if text is not None:
        for output in map(normpath, outputs):
            w.files[output] = (w.files.get(output, ()) if node.appends else ()) + text


def written(w: Walker, statement: Statement | None) -> Value | None:
    """What a statement writes: the input, if `cat` or `tee` copies it, or what `echo` or `printf` prints."""
    if not isinstance(statement, Command):
        return None
    if statement.name == "tee" or w.text(statement) in ("cat", "cat -"):
        return w.stdin if statement.stdin is None else None
    if statement.name not in ("echo", "printf"):
        return None
    outer = w.printed, w.spoiled
    w.printed, w.spoiled = [], False
    w.run(statement)
    printed, spoiled = w.printed, w.spoiled
    w.printed, w.spoiled = outer
    return None if spoiled else tuple(printed)


def note_changes(w: Walker, node: Command) -> None:
    """Records the files that a command of `CHANGING` writes to."""
    words = fields(w, node.words)[1:]
    items = [item for item in words if isinstance(item, Field)]
    options = [item.prefix for item in items if item.prefix.startswith("-")]
    files = [item.parts for item in items if not item.prefix.startswith("-")]
    if node.name in _IN_PLACE and not any(map(_EDITS, options)):
        return
    if node.name == "mv" or (node.name in _REMOVE and len(items) < len(words)):
        w.made.clear()
    if node.name in _ONTO:
        folder = text_of(files[-1]) or "" if len(files) > 1 else ""
        source = basename((text_of(files[0]) or "").rstrip("/")) if len(files) > 1 else ""
        if source and (folder in (".", "..") or folder.endswith("/")):
            w.changed[normpath(folder + "/" + source)] = w.line(node)
        files = files[-1:]
    for file in files:
        if node.name == "mkdir":
            _make(w, file)
        elif node.name in _REMOVE:
            gone = _name(w, file)
            w.made = {name for name in w.made if gone and name != gone and not name.startswith(f"{gone}/")}
        else:
            note_change(w, file, w.line(node))


def _make(w: Walker, folder: Value) -> None:
    """Records that a folder is there from here on, whichever way the script takes."""
    name = _name(w, folder)
    if name and not w.doubts:
        w.made |= {name[:end] for end in range(1, len(name) + 1) if name[end : end + 1] in ("", "/")}


def _name(w: Walker, file: Value) -> str:
    """A path as seen from the script's folder; "" if it isn't known, or may be a pattern."""
    seen = seen_from_folder(w, file)
    name = below(seen) or text_of(seen) or _with_variables(seen)
    return normpath(name) if (name[:1] in ("/", "$") or seen is not file) and not {*name} & {*"*?["} else ""


def _with_variables(path: Value) -> str:
    """A path that begins with a variable from outside: `$HOME/ckpt`; "" for any other."""
    names = [part.text if isinstance(part, Lit) else _variable(part) for part in path]
    return "".join(names) if names and all(names) and names[0].startswith("$") else ""


def _variable(part: Hole | OneOf) -> str:
    """`${NAME}`; "" where it is none, or a file may set it meanwhile."""
    may_change = isinstance(part.reason, ByVariable) and part.reason.giver
    if not isinstance(part, Hole) or part.taken_in is not None or may_change:
        return ""
    name = part.variable or part.outside
    return name and f"${{{name}}}"


def is_made(w: Walker, folder: Value) -> bool:
    """Whether the script has made a folder before."""
    return _name(w, folder) in w.made


def note_change(w: Walker, file: Value, line: str) -> None:
    """Records that a file is written to, if its place is known as seen from the script's folder."""
    name = below(file) or text_of(file)
    if name and w.printed is None:
        w.changed[normpath(name)] = line
