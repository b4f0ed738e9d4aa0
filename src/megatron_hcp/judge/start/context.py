"""Under which conditions upstream's code comes to a guard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.validators.outcome import Guard
from megatron_hcp.validators.program import StartProgram, condition_of
from megatron_hcp.validators.trees import names_in, tree_of


class Context(NamedTuple):
    """The conditions of the blocks that a guard stands in within its function, outermost first.

    `own` is the condition of the block of a raise: the guard's own, turned round. An assert has none. `behind` are the
    expressions that the function's own names in its condition were given before; at `passed` the function would have
    returned.
    """

    around: tuple[str, ...] = ()
    own: str = ""
    behind: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()

    @property
    def conditions(self) -> tuple[str, ...]:
        return (*self.around, self.own) if self.own else self.around


def context_of(program: StartProgram, guard: Guard) -> Context:
    """Where a guard stands in its function; nothing if it isn't there."""
    return next(contexts_of(program, guard), Context())


def known_contexts(program: StartProgram, guard: Guard) -> tuple[Context, ...]:
    """`contexts_of`, looked for once in a program: a guard that no fix clears speaks in each trial."""
    return program.known("contexts", guard, lambda: tuple(contexts_of(program, guard)))


def contexts_of(program: StartProgram, guard: Guard) -> Iterator[Context]:
    """The places of a guard: upstream may ask the same in several blocks of a function."""
    unit = program.find(guard.function)
    lines = unit.lines if unit is not None else ()
    for at, line in enumerate(lines):
        if guard.condition not in line or condition_of(line) != (guard.condition, guard.message):
            continue
        kind = line.lstrip().partition(" ")[0]
        if kind in ("check", "stop"):
            found, behind, passed = above(lines, at), _behind(lines[:at], guard.condition), _passed(lines, at)
            if kind == "stop" and found:
                yield Context(tuple(found[:-1]), found[-1], behind, passed)
            else:
                yield Context(tuple(found), "", behind, passed)


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


def _passed(lines: tuple[str, ...], at: int) -> tuple[str, ...]:
    """The conditions of the blocks before a line that do nothing but return, in whose reach it stands."""
    found: list[str] = []
    depth = _depth(lines[at])
    for line, below in zip(reversed(lines[: at - 1]), reversed(lines[:at])):
        depth = min(depth, _depth(line))
        word, _, rest = line.strip().partition(" ")
        if word == "if" and _depth(line) == depth and below == f"{' ' * (depth + 1)}return":
            found.append(rest)
    return tuple(found[::-1])


def _behind(lines: Sequence[str], condition: str) -> tuple[str, ...]:
    """The expressions that the names in a condition were given in these lines, and the names in those."""
    given: dict[str, list[str]] = {}
    for line in lines:
        target, equals, text = line.strip().partition(" = ")
        if equals and target.isidentifier():
            given.setdefault(target, []).append(text)
    found: dict[str, None] = {}
    waiting = [condition]
    while waiting:
        for name, _ in names_in(tree_of(waiting.pop())):
            more = [text for text in given.pop(name, ()) if text not in found]
            found |= dict.fromkeys(more)
            waiting += more
    return tuple(found)


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
