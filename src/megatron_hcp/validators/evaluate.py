"""Runs a program of validators over settings, with three values.

Where a condition is unknown, both of its branches are followed, and what they leave different is unknown afterwards; a
guard that is violated in there is open, not a refusal. After a violated guard the evaluation goes on as if it held, so
that other functions are judged too: upstream itself would have stopped.
"""

from __future__ import annotations

from typing import Any

from megatron_hcp.validators.guards import guard_of, sections_in, stop_below, values_in
from megatron_hcp.validators.journal import Writes
from megatron_hcp.validators.operations import iterable
from megatron_hcp.validators.outcome import Guard, Open, Refusal
from megatron_hcp.validators.program import StartProgram, Unit, condition_of, fields_in, is_readable
from megatron_hcp.validators.repeated import Outside, Repeated, call_of
from megatron_hcp.validators.values import (
    ABSENT,
    NOT_READ,
    STUMBLES,
    UNREADABLE,
    NotKnown,
    Thing,
    is_plain,
    merged,
    same,
    truth,
)

MOST_STEPS, _DEEPEST = 40_000, 25
_RETURN = "<return>"
_NEXT, _LEFT, _STOPPED, _BREAK, _CONTINUE = range(5)


class TooLongError(Exception):
    """The program does not end within the bound on steps."""


class Evaluation(Repeated):
    """One run of a program. `outside` answers what is asked about the machine and the environment."""

    def __init__(self, program: StartProgram, outside: Outside, most_steps: int = MOST_STEPS) -> None:
        super().__init__(program, outside)
        self._most_steps = most_steps
        self._results: dict[Any, tuple[Any, int]] = program.kept.setdefault("results", {})

    def call_unit(self, name: str, given: list[Any], named: dict[str, Any]) -> Any:
        unit = self._unit(name)
        if unit is None or len(self.calls) >= _DEEPEST:
            return NOT_READ
        if unit.kind == "class":
            self._refuse_unknown(unit, named, "config")
            return self._construct(unit, given, named)
        if not (is_plain(given) and is_plain(named.values())):
            return self._once(unit, given, named)
        call = (name, repr(given), repr(named))
        if (known := self._results.get(call)) is None:
            before, steps = self.traces, self.steps
            result = self._once(unit, given, named)
            if self.traces > before or not is_plain((result,)):
                return result
            # Upstream computes the same rank groups again and again.
            self._results[call] = result, self.steps - steps
            return result
        self.steps += known[1]  # as if it ran: what is judged must not depend on what was judged before
        return known[0]

    def _once(self, unit: Unit, given: list[Any], named: dict[str, Any]) -> Any:
        call = None if self.maybe else call_of(unit.name, given, named)
        return self._run(unit, given, named) if call is None else self.once(call, lambda: self._run(unit, given, named))

    def _construct(self, unit: Unit, given: list[Any], named: dict[str, Any], key: str | None = None) -> Any:
        made = super()._construct
        call = None if self.maybe else call_of(unit.name, given, named, key)
        return made(unit, given, named, key) if call is None else self.once(call, lambda: made(unit, given, named, key))

    def _run(self, unit: Unit, given: list[Any], named: dict[str, Any]) -> Any:
        frame: dict[str, Any] = {}
        before, self.frame = self.frame, frame
        for place, parameter in enumerate(unit.head):
            key, equals, default = parameter.partition("=")
            if place < len(given):
                frame[key] = given[place]
            elif key in named:
                frame[key] = named[key]
            else:
                frame[key] = self.text_value(default) if equals else NOT_READ
        unsure = len(self.maybe)
        self.calls.append(unit)
        try:
            self._block(unit, 0, 0)
        finally:
            del self.maybe[unsure:]
            self.calls.pop()
            self.frame = before
        return frame.get(_RETURN)

    def _block(self, unit: Unit, at: int, depth: int) -> int:
        """Runs the statements of a depth from a line on, up to the end of their block."""
        lines, depths = unit.lines, self._depths[unit.name]
        while at < len(lines) and depths[at] >= depth:
            self.steps += 1
            if self.steps > self._most_steps:
                raise TooLongError
            if depths[at] > depth:
                at += 1
                continue
            word, _, rest = lines[at][depth:].partition(" ")
            if word == "if":
                status, at = self._branch(unit, at, depth, rest)
            elif word == "for":
                status, at = self._loop(unit, at, depth, rest)
            else:
                quiet = word == "check" and self._is_quiet(unit, at)
                status, at = (_NEXT if quiet else self._statement(word, rest, lines[at])), at + 1
            if status != _NEXT:
                return status
        return _NEXT

    def _is_quiet(self, unit: Unit, at: int) -> bool:
        """Whether a quiet line's condition reads only fields that have upstream's defaults."""
        if at not in unit.quiet:
            return False
        owner = self.frame[unit.head[0]]
        if not isinstance(owner, Thing) or owner.changed is None:
            return False
        return owner.changed.isdisjoint(fields_in(unit.lines[at]))

    def _statement(self, word: str, rest: str, line: str) -> int:
        if word == "check":
            return self._check(line)
        if word == "stop":
            self._violated(line)
            return _STOPPED
        if word == "return":
            value = self.text_value(rest) if rest else None
            earlier = self.frame.get(_RETURN, value)
            self.journal.put(self.frame, _RETURN, value if same(earlier, value) else merged(earlier, value))
            return _LEFT
        if word == "do":
            self.text_value(rest)
        elif word == "del":
            self.assign_text(rest, ABSENT)
        elif word == "forget":
            self.assign_text(rest, NOT_READ)
        elif word in ("break", "continue"):
            return _BREAK if word == "break" else _CONTINUE
        else:
            self.assign_line(line.lstrip())
        return _NEXT

    def _branch(self, unit: Unit, at: int, depth: int, text: str) -> tuple[int, int]:
        ends = self._ends[unit.name]
        other = end = ends[at]
        if end < len(unit.lines) and self._depths[unit.name][end] == depth and unit.lines[end][depth:] == "else":
            end = ends[end]
        test = False if self._is_quiet(unit, at) else truth(self.text_value(text))
        if self._is_sure(test) and (stop := stop_below(unit, at)):
            test = self._violated(stop)
        if not isinstance(test, NotKnown):
            start = at + 1 if test else other + 1
            status = self._block(unit, start, depth + 1) if test or end > other else _NEXT
            return (_NEXT if status == _STOPPED and not self.maybe else status), end
        self.maybe.append(test)
        one, writes = self._tried(unit, at + 1, depth + 1)
        two, others = self._tried(unit, other + 1, depth + 1) if end > other else (_NEXT, {})
        self.maybe.pop()
        if _STOPPED in (one, two):
            kept, status = (others, two) if one == _STOPPED else (writes, one)
            for owner, key in ((owner, key) for (_, key), (owner, _) in kept.items()):
                self.journal.put(owner, key, kept[id(owner), key][1])
            return status, end
        self.journal.join(test, writes, others)
        if one == two:
            return one, end
        self.maybe.append(test)  # one branch left the function or the loop: the rest is conditional
        return _NEXT, end

    def _tried(self, unit: Unit, at: int, depth: int) -> tuple[int, Writes]:
        """Follows a branch, takes back what it wrote, and returns that."""
        unsure = len(self.maybe)
        outer = self.journal.begin()
        status = self._block(unit, at, depth)
        del self.maybe[unsure:]
        return status, self.journal.taken_back(outer)

    def _loop(self, unit: Unit, at: int, depth: int, text: str) -> tuple[int, int]:
        end = self._ends[unit.name][at]
        target, _, items = text.partition(" in ")
        owner = self.text_value(items)
        try:
            values = None if isinstance(owner, NotKnown) else iterable(owner)
        except ValueError:
            values = None
        if values is None:
            test = owner if isinstance(owner, NotKnown) else NOT_READ
            self.maybe.append(test)
            self.assign_text(target, test)
            _, writes = self._tried(unit, at + 1, depth + 1)
            self.maybe.pop()
            for (_, key), (written, _) in writes.items():
                self.journal.put(written, key, test)
            return _NEXT, end
        for value in values:
            self.assign_text(target, value)
            status = self._block(unit, at + 1, depth + 1)
            if status == _BREAK:
                break
            if status in (_LEFT, _STOPPED):
                return status, end
        return _NEXT, end

    # Guards

    def _check(self, line: str) -> int:
        value = truth(self.text_value(condition_of(line)[0]))
        if isinstance(value, NotKnown) and not self._is_sure(value):
            self._is_open(line, [value, *self.maybe])
        elif not value or value is STUMBLES:
            self._violated(line)
            return _STOPPED if self.maybe else _NEXT
        return _NEXT

    def _is_sure(self, value: Any) -> bool:
        """Whether upstream ends here because it stumbles: it comes here, and nothing before has stopped it."""
        return value is STUMBLES and not self.maybe and not self.refusals

    def _violated(self, line: str) -> bool:
        """Takes down a guard that does not hold; False: the evaluation goes on as if upstream passed by it."""
        self.traces += 1
        if self.maybe:
            self._is_open(line, self.maybe)
        else:
            guard, sections = self._guard(line), tuple(sections_in(self.frame))
            self.refusals.append(Refusal(guard, values_in(guard.condition, self, self.calls[-1]), sections))
        return False

    def refuse(self, condition: str, message: str, values: tuple[tuple[str, object], ...]) -> None:
        """Takes down what a library would raise in the function that runs; `values` are settings that lead to it."""
        line = f"check {condition}\t{message}"
        self.traces += 1
        if self.maybe:
            self._is_open(line, self.maybe)
        else:
            self.refusals.append(Refusal(self._guard(line), values))

    def made(self, kind: str, fields: dict[str, Any], key: str | None) -> Any:
        unit = self._unit(kind)
        if unit is not None and key is not None:
            self._refuse_unknown(unit, fields, key)
        return super().made(kind, fields, key)

    def _refuse_unknown(self, unit: Unit, named: dict[str, Any], section: str) -> None:
        """Refuses an argument that a dataclass lacks, where all its fields are known."""
        unknown = named.keys() - self.defaults_of(unit.name).keys()
        if unknown and self.method_of(unit.name, "__init__") is None and not self.has_unread_base(unit):
            name = min(unknown)
            said = f"{unit.name}.__init__() got an unexpected keyword argument {name!r}"
            self.refuse(f"hasattr({unit.name}, {name!r})", said, ((f"{section}.{name}", named[name]),))

    def _is_open(self, line: str, unknown: list[NotKnown]) -> None:
        self.traces += 1
        within = dict.fromkeys(one.names for one in unknown)
        names = frozenset().union(*within)
        if UNREADABLE not in names:
            self.open.append(Open(self._guard(line), tuple(sorted(names)), tuple(within)))
        elif is_readable(line):
            self.blocked.add(self._guard(line))

    def _guard(self, line: str) -> Guard:
        return guard_of(self.program.repo, self.calls[-1], line)
