"""Under which conditions upstream's code comes to a guard."""

from __future__ import annotations

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.validators.outcome import Guard
from megatron_hcp.validators.program import StartProgram, condition_of


class Context(NamedTuple):
    """The conditions of the blocks that a guard stands in within its function, outermost first.

    `own` is the condition of the block of a raise: the guard's own, turned round. An assert has none.
    """

    around: tuple[str, ...] = ()
    own: str = ""

    @property
    def conditions(self) -> tuple[str, ...]:
        return (*self.around, self.own) if self.own else self.around


def context_of(program: StartProgram, guard: Guard) -> Context:
    """Where a guard stands in its function; nothing if it isn't there."""
    unit = program.find(guard.function)
    lines = unit.lines if unit is not None else ()
    for at, line in enumerate(lines):
        kind = line.lstrip().partition(" ")[0]
        if kind in ("check", "stop") and condition_of(line) == (guard.condition, guard.message):
            found = above(lines, at)
            return Context(tuple(found[:-1]), found[-1]) if kind == "stop" and found else Context(tuple(found))
    return Context()


def above(lines: tuple[str, ...], at: int) -> list[str]:
    """The conditions of the blocks around a line, outermost first."""
    found: list[str] = []
    depth = _depth(lines[at])
    is_else = False
    for line in reversed(lines[:at]):
        if _depth(line) > depth or (_depth(line) == depth and not is_else):
            continue
        word, _, rest = line.strip().partition(" ")
        depth = _depth(line)
        if word == "if":
            found.append(f"not ({rest})" if is_else else rest)
        is_else = word == "else"
    return found[::-1]


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
