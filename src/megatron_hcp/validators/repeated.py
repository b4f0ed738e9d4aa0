"""What is not judged again: settings that many launches share, and calls with the same arguments.

A fix that is tried changes a setting or two, and most functions read neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.validators.objects import Objects
from megatron_hcp.validators.outcome import Guard, Judgement, Open, Refusal
from megatron_hcp.validators.program import StartProgram, Unit
from megatron_hcp.validators.values import NOT_READ, NotKnown, Symbol, Thing, is_plain

Outside = Callable[[str, list[Any]], Any]
Asked = list[tuple[str, list[Any], tuple[type, Any]]]
_MOST_SETTINGS = 500
"""Settings of a program that are kept; a search among hidden settings would have any number."""
_MOST = 2000
"""Calls of a program that are kept; the oldest go first."""
_MOST_MACHINES = 8
"""The same of each of these, for machines that answered otherwise."""
_KNOWN = frozenset((int, str, bool, float, type(None), Symbol))


class Came(NamedTuple):
    """What a call came to: its value, and all that it left in the evaluation."""

    value: Any
    steps: int
    asked: Asked
    refusals: list[Refusal]
    open: list[Open]
    blocked: set[Guard]


class Repeated(Objects):
    """Keeps what calls came to with the program. `outside` answers what is asked about the machine."""

    def __init__(self, program: StartProgram, outside: Outside) -> None:
        super().__init__(program)
        self._outside = outside
        self._asked: Asked = []
        self.refusals: list[Refusal] = []
        self.open: list[Open] = []
        self.blocked: set[Guard] = set()
        """Guards that depend on something of upstream's which could not be read."""
        self.calls: list[Unit] = []
        self.traces = 0  # how often a guard spoke, or the machine was asked or changed
        self._variables: dict[str, Any] = {}
        """What upstream itself sets of the environment; None for a variable that it unsets."""
        self._times_set = 0
        self._came: dict[Any, list[Came]] = program.kept.setdefault("came", {})

    def outside(self, name: str, given: list[Any]) -> Any:
        self.traces += 1
        if name == "env" and isinstance(given[0], str) and given[0] in self._variables:
            answer = self._variables[given[0]]
            answer = given[1] if answer is None and len(given) > 1 else answer
        else:
            answer = self._outside(name, given)
        self._asked.append((name, given, exact(answer)))
        return answer

    def set_variable(self, name: Any, value: Any) -> None:
        self.traces += 1
        self._times_set += 1
        if isinstance(name, str):
            self.journal.put(self._variables, name, value)

    def once(self, call: Any, run: Callable[[], Any]) -> Any:
        """What a run comes to that depends on `call`, who calls, the machine and whether a guard has refused.

        Not for a run under an unknown condition: what it leaves depends on that.
        A run that sets the environment is not kept.
        """
        key = call, bool(self.refusals), self.calls[-1].name if self.calls else ""
        for came in self._came.get(key, ()):
            if all(exact(self.outside(name, given)) == answer for name, given, answer in came.asked):
                return self._again(came)
        blocked, self.blocked = self.blocked, set()
        steps, asked, refusals, opened = self.steps, len(self._asked), len(self.refusals), len(self.open)
        times_set = self._times_set
        try:
            value = run()
        finally:
            own, self.blocked = self.blocked, blocked | self.blocked
        if self._times_set == times_set and can_be_shared(
            [value] if type(value) is not Thing else value.fields.values()
        ):
            left = self._asked[asked:], self.refusals[refusals:], self.open[opened:], own
            if len(self._came) >= _MOST:
                del self._came[next(iter(self._came))]
            kept = self._came.setdefault(key, [])
            kept.append(Came(_copy(value), self.steps - steps, *left))
            del kept[:-_MOST_MACHINES]
        return value

    def _again(self, came: Came) -> Any:
        self.steps += came.steps  # as if it ran: what is judged must not depend on what was judged before
        self.traces += len(came.refusals) + len(came.open) + len(came.blocked)
        self.refusals += came.refusals
        self.open += came.open
        self.blocked |= came.blocked
        return _copy(came.value)


def call_of(name: str, given: list[Any], named: dict[str, Any], key: str | None = None) -> Any:
    """What tells a call from others; None if it is given something that may change or is not known."""
    if not (can_be_shared(given) and can_be_shared(named.values())):
        return None
    symbols = [place for place, value in enumerate((*given, *named.values())) if type(value) is Symbol]
    return name, key, repr(given), repr(named), tuple(symbols)


def can_be_shared(values: Iterable[Any]) -> bool:
    """Whether nobody can change values, or tell one from another that looks the same: no unknown ones but upstream's
    own that could not be read, and symbols only by themselves."""
    return all(
        type(value) in _KNOWN
        or value is NOT_READ
        or (type(value) in (list, tuple) and Symbol not in map(type, value) and can_be_shared(value))
        for value in values
    )


def _copy(value: Any) -> Any:
    if type(value) is not Thing:
        return value
    copy = Thing(dict(value.fields), value.kind, value.is_closed, value.key)
    copy.changed = None if value.changed is None else {*value.changed}
    return copy


class AskedMachine:
    """Answers a program's questions about the machine, and keeps each with its answer."""

    def __init__(self, answer: Callable[[str, list[Any]], Any]) -> None:
        self._answer = answer
        self.asked: Asked = []
        self.is_plain = True

    def __call__(self, name: str, given: list[Any]) -> Any:
        answer = self._answer(name, given)
        self.is_plain = self.is_plain and is_plain(given)
        self.asked.append((name, given, exact(answer)))
        return answer

    def answers_as(self, asked: Asked) -> bool:
        """Whether its answers are those that were given to these questions."""
        return all(exact(self._answer(name, given)) == answer for name, given, answer in asked)


class KnownOutcomes:
    """The place of a launch's outcome among those of a program. The outcome follows from the settings that differ from
    the defaults of the parser (`beside` is the other part of it), and from what the machine answers."""

    def __init__(self, program: StartProgram, beside: StartProgram | None, given: Thing) -> None:
        self._all: dict[Any, list[tuple[Asked, Judgement]]] = program.kept.setdefault("judged", {})
        self._key: Any = None
        if given.kind == "args" and given.changed is not None:
            changed = [(name, given.fields[name]) for name in given.changed]
            if is_plain([value for _, value in changed if type(value) is not Symbol]):
                self._key = program.release, beside, frozenset((name, exact(value)) for name, value in changed)

    def known(self, machine: AskedMachine) -> Judgement | None:
        """The outcome for the same settings on such a machine; None if there was none yet."""
        kept = self._all.get(self._key, ())
        return next((judgement for asked, judgement in kept if machine.answers_as(asked)), None)

    def keep(self, machine: AskedMachine, judgement: Judgement) -> Judgement:
        """The same outcome, which is kept; the oldest go first."""
        if self._key is not None and machine.is_plain:
            if len(self._all) >= _MOST_SETTINGS:
                del self._all[next(iter(self._all))]
            self._all[self._key] = [*self._all.get(self._key, ()), (machine.asked, judgement)][-_MOST_MACHINES:]
        return judgement


def exact(value: Any) -> tuple[type, Any]:
    """Tells plain values apart, 1 from True too, and a symbol from a text."""
    kind = type(value)
    return kind, value.names if kind is NotKnown else repr(value) if kind in (list, tuple) else value
