"""Why something of a script is unknown."""

from __future__ import annotations


class WhyUnknown(str):
    """A reason why a value is unknown. `options`: the texts one of which it is, where these are known."""

    options: tuple[str, ...] = ()


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
