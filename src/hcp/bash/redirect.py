"""Statements with redirections: here-documents used as input, or written to files that the script runs later."""

from __future__ import annotations

from functools import partial

from hcp.bash.expand import value
from hcp.bash.syntax import Pipeline, Redirected
from hcp.bash.value import text_of
from hcp.bash.walker import Status, Walker


def redirected(w: Walker, node: Redirected) -> Status:
    """A statement with a here-document: as its input, or written to a file that the script may run later."""
    outer = w.stdin
    if node.stdin is not None:
        w.stdin = value(w, node.stdin)
    outputs = [text for word in node.outputs if (text := text_of(value(w, word))) is not None]
    _write(w, node, outputs)
    status = None
    if node.statement is not None and not (w.printed is not None and "2" in outputs):
        status = w.run(node.statement)
    for statement in node.following:
        if isinstance(statement, Pipeline):
            w.subshell(partial(w.block, statement.statements))
        elif w.printed is None:
            w.either([partial(w.run, statement), bool], "depends on the command before it", w.span(statement))
    w.stdin = outer
    return status


def _write(w: Walker, node: Redirected, outputs: list[str]) -> None:
    """What is written to the files: the input, if `cat` or `tee` copies it. `2` is standard error."""
    first = w.text(node.statement).split(None, 1)[:1] if node.statement is not None else []
    if first in (["cat"], ["tee"]) and w.stdin is not None:
        w.files.update(dict.fromkeys(outputs, w.stdin))
    elif w.printed is not None and outputs:
        w.spoiled = w.spoiled or not all(output in ("2", "/dev/null") for output in outputs)
