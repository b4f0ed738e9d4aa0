"""Why something of a script is unknown."""

from __future__ import annotations

from typing import Literal, TypeVar

_Why = TypeVar("_Why", bound="WhyUnknown")


class WhyUnknown(str):
    """A reason why a value is unknown.

    `options`: the texts one of which it is, where these are known. `by`: a condition of the script decides, whose
    sentence lacks its subject ("depends on …"), or the output of a command, which is never run.
    """

    options: tuple[str, ...] = ()
    by: Literal["", "branch", "command"] = ""

    def of_branch(self: _Why) -> _Why:
        """This reason itself, marked as one that a condition of the script decides."""
        self.by = "branch"
        return self


class ByVariable(WhyUnknown):
    """A reason that hangs on the value of one variable, or of an argument (`1`; `@` for all of them).

    `argument`: the script's argument that the value comes from; "" where it is not known to be one.
    """

    variable: str
    argument: str

    @classmethod
    def of(cls, reason: str, variable: str, argument: str = "") -> ByVariable:
        made = cls(reason)
        made.variable = variable
        made.argument = argument if variable.isidentifier() else variable
        return made


def of_command(line: str) -> WhyUnknown:
    """The reason for what a command prints."""
    made = WhyUnknown(f"the output of a command in line {line} is not known: commands are never run")
    made.by = "command"
    return made
