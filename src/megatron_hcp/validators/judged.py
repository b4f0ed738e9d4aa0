"""What validators made of settings, for all launches that have the same: many differ in nothing that is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from megatron_hcp.validators.outcome import Judgement
from megatron_hcp.validators.program import StartProgram
from megatron_hcp.validators.values import NotKnown, Symbol, Thing, is_plain

_MOST = 500
"""Settings of a program that are kept; a search among hidden settings would have any number."""
_MOST_MACHINES = 8
"""The same of each settings."""
Asked = list[tuple[str, list[Any], tuple[type, Any]]]


class AskedMachine:
    """Answers a program's questions about the machine, and keeps each with its answer."""

    def __init__(self, answer: Callable[[str, list[Any]], Any]) -> None:
        self._answer = answer
        self.asked: Asked = []
        self.is_plain = True

    def __call__(self, name: str, given: list[Any]) -> Any:
        answer = self._answer(name, given)
        self.is_plain = self.is_plain and is_plain(given)
        self.asked.append((name, given, _exact(answer)))
        return answer

    def answers_as(self, asked: Asked) -> bool:
        """Whether its answers are those that were given to these questions."""
        return all(_exact(self._answer(name, given)) == answer for name, given, answer in asked)


class KnownOutcomes:
    """The place of a launch's outcome among those of a program. The outcome follows from the settings that differ from
    the defaults of the parser (`beside` is the other part of it), and from what the machine answers."""

    def __init__(self, program: StartProgram, beside: StartProgram | None, given: Thing) -> None:
        self._all: dict[Any, list[tuple[Asked, Judgement]]] = program.kept.setdefault("judged", {})
        self._key: Any = None
        if given.kind == "args" and given.changed is not None:
            changed = [(name, given.fields[name]) for name in given.changed]
            if is_plain([value for _, value in changed if type(value) is not Symbol]):
                self._key = program.release, beside, frozenset((name, _exact(value)) for name, value in changed)

    def known(self, machine: AskedMachine) -> Judgement | None:
        """The outcome for the same settings on such a machine; None if there was none yet."""
        kept = self._all.get(self._key, ())
        return next((judgement for asked, judgement in kept if machine.answers_as(asked)), None)

    def keep(self, machine: AskedMachine, judgement: Judgement) -> Judgement:
        """The same outcome, which is kept; the oldest go first."""
        if self._key is not None and machine.is_plain:
            if len(self._all) >= _MOST:
                del self._all[next(iter(self._all))]
            self._all[self._key] = [*self._all.get(self._key, ()), (machine.asked, judgement)][-_MOST_MACHINES:]
        return judgement


def _exact(value: Any) -> tuple[type, Any]:
    """Tells plain values apart, 1 from True too, and a symbol from a text."""
    kind = type(value)
    return kind, value.names if kind is NotKnown else repr(value) if kind in (list, tuple) else value
