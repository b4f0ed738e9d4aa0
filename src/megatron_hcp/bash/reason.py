"""Why something of a script is unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar

_Why = TypeVar("_Why", bound="WhyUnknown")


class RunTime:
    """A command or a condition as it is written, for the job to run: `variables` that it reads, each a `Var`, and the
    `folder` that it runs in, a `Value`; None for the script's own. `reads`: all names that it reads, set or not.

    `end`: where the last statement in it ends in the script, if it takes in files. Two of them are never equal: the
    same text may print something else the next time.
    """

    __slots__ = ("end", "folder", "reads", "text", "variables")

    def __init__(
        self,
        text: str,
        variables: Mapping[str, Any],
        folder: Any,
        reads: frozenset[str],
        end: int = 0,
    ) -> None:
        self.text, self.variables, self.folder, self.reads = text, variables, folder, reads
        self.end = end

    def printing(self, names: Iterable[str]) -> RunTime:
        """A command that prints variables after this text, so that bash takes them back in."""
        ends = "trap 'echo what the launch sources has ended it >&2; exit 1' EXIT"
        text = f"$({ends}\n{{ {self.text}\n}} >&2\ntrap - EXIT\ndeclare -p {' '.join(names)} 2>/dev/null || true)"
        return RunTime(text, self.variables, self.folder, self.reads.union(names))


class WhyUnknown(str):
    """A reason why a value is unknown.

    `options`: the texts one of which it is, where these are known. `by`: a condition of the script decides, whose
    sentence lacks its subject ("depends on …"), or the output of a command, which is never run. `test`: the condition
    itself, if the first of two values holds where it is true; with `is_negated`, where it is false. `do`: what to do.
    """

    options: tuple[str, ...] = ()
    by: Literal["", "branch", "command"] = ""
    test: RunTime | None = None
    is_negated = False
    do = ""

    def of_branch(self: _Why) -> _Why:
        """This reason itself, marked as one that a condition of the script decides."""
        self.by = "branch"
        return self

    def without_test(self: _Why) -> _Why:
        """The same reason, for values that are not in the order of the condition's branches."""
        made = type(self)(self)
        made.__dict__.update(self.__dict__, test=None)
        return made


class ByVariable(WhyUnknown):
    """A reason that hangs on the value of one variable, or of an argument (`1`; `@` for all of them).

    `argument`: the script's argument that the value comes from; "" where it is not known to be one.
    """

    variable: str
    argument: str
    further: tuple[str, ...] = ()
    """Other variables on which what is unknown hangs too."""
    giver: str = ""
    """What the script takes in and may set it, if that isn't read: `blend.sh, which line 17 sources`."""
    choices: tuple[str, ...] = ()
    """The values that the script tells apart, if it does so in a `case`."""
    file: str = ""
    """The file that the script sources and that may set the variable, but isn't read."""

    @classmethod
    def of(cls, reason: str, variable: str, argument: str = "") -> ByVariable:
        made = cls(reason)
        made.variable = variable
        made.argument = argument if variable.isidentifier() else variable
        return made

    def saying(self, text: str) -> ByVariable:
        """The same reason in other words."""
        made = ByVariable.of(text, self.variable, self.argument)
        made.further, made.choices, made.file, made.giver = self.further, self.choices, self.file, self.giver
        return made


def of_command(line: str) -> WhyUnknown:
    """The reason for what a command prints."""
    made = WhyUnknown(f"the output of a command in line {line} is not known: commands are never run")
    made.by = "command"
    return made
