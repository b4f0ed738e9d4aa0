"""Why something of a script is unknown."""

from __future__ import annotations


class ByVariable(str):
    """A reason that hangs on the value of one variable, or of an argument (`1`; `@` for all of them)."""

    __slots__ = ("variable",)
    variable: str

    @classmethod
    def of(cls, reason: str, variable: str) -> ByVariable:
        made = cls(reason)
        made.variable = variable
        return made
