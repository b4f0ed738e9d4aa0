"""What the health checks of the nodes mean, which ran on every node before the job started."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

_NOT_RUN = (126, 127)
"""A shell's exit codes for a command that cannot be executed or found: they say nothing about the node."""


_ENDED = (124, 137)
"""The exit codes of `timeout` for a command that it ended, and for one that it had to kill."""


class NodeAnswer(NamedTuple):
    """The result of one check on one node."""

    node: str
    check: str
    code: int
    said: str


def read_answers(lines: Iterable[str]) -> list[NodeAnswer]:
    """The lines that are results; others (from a login script) are skipped."""
    found = []
    for line in lines:
        node, check, code, said = [*line.rstrip("\n").split("\t"), "", "", ""][:4]
        if check and code.isdecimal():
            found.append(NodeAnswer(node, check, int(code), said))
    return found


def judge(answers: Sequence[NodeAnswer], nodes: int, names: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """(the problems, one line each; the unfit nodes) for `nodes` nodes that all ran the same checks.

    With their `names`, those that did not answer are unfit.
    """
    problems, unfit = [], []
    for check in dict.fromkeys(answer.check for answer in answers):
        heard = [answer for answer in answers if answer.check == check]
        if len(heard) < nodes:
            silent = sorted(set(names) - {answer.node for answer in heard})
            who = f"; {', '.join(silent)} did not" if silent else ""
            problems.append(f"{check}: {len(heard)} of {nodes} nodes answered{who}")
            unfit += silent
        for answer in heard:
            if answer.code in _NOT_RUN:
                problems.append(f"{check} could not run on {answer.node}: {answer.said or 'no such command'}")
            elif answer.code in _ENDED:
                problems.append(f"{check}: {answer.node} is unfit: the check did not end in time and was stopped")
                unfit.append(answer.node)
            elif answer.code:
                problems.append(f"{check}: {answer.node} is unfit (exit code {answer.code}): {answer.said}")
                unfit.append(answer.node)
    if not answers:
        problems.append(f"none of {nodes} nodes answered")
    return problems, sorted(set(unfit))
