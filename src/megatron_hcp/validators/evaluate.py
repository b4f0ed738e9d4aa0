"""Runs a program of validators over settings, with three values.

Where a condition is unknown, both of its branches are followed, and what they leave different is unknown afterwards; a
guard that is violated in there is open, not a refusal. After a violated guard the evaluation goes on as if it held, so
that other functions are judged too: upstream itself would have stopped.
"""

from __future__ import annotations

import _ast
from collections.abc import Callable
from typing import Any
from zlib import crc32

from megatron_hcp.validators.expression import Expressions, _iterable, tree_of
from megatron_hcp.validators.outcome import Guard, Open, Refusal
from megatron_hcp.validators.program import Program, Unit, condition_of
from megatron_hcp.validators.values import ABSENT, NOT_READ, UNREADABLE, Thing, Unknown, merged, same, truth

_MOST_STEPS = 200_000
_DEEPEST = 25
_NEXT, _LEFT, _STOPPED, _BREAK, _CONTINUE = range(5)
_RETURN = "<return>"
Outside = Callable[[str, list[Any]], Any]
_Writes = dict[tuple[int, Any], tuple[dict[Any, Any], Any]]


class TooLongError(Exception):
    """The program does not end within the bound on steps."""


class Evaluation(Expressions):
    """One run of a program. `outside` answers what is asked about the machine and the environment."""

    def __init__(self, program: Program, outside: Outside) -> None:
        super().__init__()
        self.program, self._outside = program, outside
        self.refusals: list[Refusal] = []
        self.open: list[Open] = []
        self.steps = 0
        self._units: dict[str, Unit | None] = program.kept.setdefault("units", {})
        self._depths: dict[str, list[int]] = program.kept.setdefault("depths", {})
        self._calls: list[Unit] = []
        self._maybe: list[Unknown] = []
        self._journal: list[tuple[dict[Any, Any], Any, Any]] | None = None

    def has_unit(self, name: str) -> bool:
        return self._unit(name) is not None

    def outside(self, name: str, given: list[Any]) -> Any:
        return self._outside(name, given)

    def change(self, thing: Thing, name: Any, value: Any) -> None:
        self._put(thing.fields, name, value)

    def fields_of(self, name: str) -> list[str] | None:
        if self._unit(name) is None:
            return None
        return list(self._defaults(name))

    def _unit(self, name: str) -> Unit | None:
        if name not in self._units:
            unit = self._units[name] = self.program.find(name)
            if unit is not None:
                self._depths[name] = [len(line) - len(line.lstrip(" ")) for line in unit.lines]
        return self._units[name]

    def _put(self, owner: dict[Any, Any], key: Any, value: Any) -> None:
        if self._journal is not None:
            self._journal.append((owner, key, owner.get(key, ABSENT)))
        if value is ABSENT:
            owner.pop(key, None)
        else:
            owner[key] = value

    # Calls

    def call_unit(self, name: str, given: list[Any], named: dict[str, Any]) -> Any:
        unit = self._unit(name)
        if unit is None or len(self._calls) >= _DEEPEST:
            return NOT_READ
        if unit.kind == "class":
            return self._construct(unit, given, named)
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
        unsure = len(self._maybe)
        self._calls.append(unit)
        try:
            self._block(unit, 0, 0)
        finally:
            del self._maybe[unsure:]
            self._calls.pop()
            self.frame = before
        return frame.get(_RETURN)

    def _construct(self, unit: Unit, given: list[Any], named: dict[str, Any]) -> Any:
        start = self._method_of(unit, "__init__")
        if start is not None:
            thing = Thing({}, unit.name)
            self.call_unit(start, [thing, *given], named)
            return thing
        fields = self._defaults(unit.name)
        names = list(fields)
        thing = Thing({**fields, **dict(zip(names, given)), **named}, unit.name)
        ready = self._method_of(unit, "__post_init__")
        if ready is not None:
            self.call_unit(ready, [thing], {})
        return thing

    def _defaults(self, name: str) -> dict[str, Any]:
        known = self.program.kept.setdefault("defaults", {})
        if name in known:
            return dict(known[name])
        unit = self._unit(name)
        if unit is None:
            return {}
        fields: dict[str, Any] = {}
        for base in reversed(unit.head):
            fields |= self._defaults(base)
        before, self.frame = self.frame, {}
        for line in unit.lines:
            key, _, text = line.partition(" = ")
            fields[key] = self.text_value(text)
        self.frame = before
        if not any(isinstance(value, Thing) for value in fields.values()):  # those may be changed
            known[name] = dict(fields)
        return fields

    def _method_of(self, unit: Unit, name: str) -> str | None:
        if self.has_unit(f"{unit.name}.{name}"):
            return f"{unit.name}.{name}"
        bases = filter(None, map(self._unit, unit.head))
        return next(filter(None, (self._method_of(base, name) for base in bases)), None)

    # Statements

    def _block(self, unit: Unit, at: int, depth: int) -> int:
        """Runs the statements of a depth from a line on, up to the end of their block."""
        lines, depths = unit.lines, self._depths[unit.name]
        while at < len(lines) and depths[at] >= depth:
            self.steps += 1
            if self.steps > _MOST_STEPS:
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
                status, at = self._statement(word, rest, lines[at]), at + 1
            if status != _NEXT:
                return status
        return _NEXT

    def _statement(self, word: str, rest: str, line: str) -> int:
        if word == "check":
            return self._check(line)
        if word == "stop":
            self._violated(line)
            return _STOPPED
        if word == "return":
            value = self.text_value(rest) if rest else None
            earlier = self.frame.get(_RETURN, value)
            self._put(self.frame, _RETURN, value if same(earlier, value) else merged(earlier, value))
            return _LEFT
        if word == "do":
            self.text_value(rest)
        elif word == "del":
            self._assign(tree_of(rest), ABSENT)
        elif word == "forget":
            tree = tree_of(rest)
            for target in tree.elts if isinstance(tree, _ast.Tuple) else [tree]:
                self._assign(target, NOT_READ)
        elif word in ("break", "continue"):
            return _BREAK if word == "break" else _CONTINUE
        else:
            self._assign_line(line.lstrip())
        return _NEXT

    def _assign_line(self, line: str) -> None:
        target, _, text = line.partition(" = ")
        value = self.text_value(text)
        owner, dot, name = target.partition(".")
        if not dot and owner.isidentifier():
            self._put(self.frame, owner, value)
        elif name.isidentifier() and isinstance(thing := self.frame.get(owner), Thing):
            self._put(thing.fields, name, value)
        else:
            self._assign(tree_of(target), value)

    def _assign(self, target: Any, value: Any) -> None:
        if isinstance(target, _ast.Name):
            self._put(self.frame, target.id, value)
        elif isinstance(target, _ast.Attribute):
            owner = self.value(target.value)
            if isinstance(owner, Thing):
                self._put(owner.fields, target.attr, value)
        elif isinstance(target, _ast.Subscript):
            owner, key = self.value(target.value), self.value(target.slice)
            if isinstance(owner, Thing):
                if not isinstance(key, Unknown):
                    self._put(owner.fields, key, value)
                else:
                    for name in list(owner.fields):
                        self._put(owner.fields, name, key)
            elif isinstance(owner, list) and isinstance(key, int) and -len(owner) <= key < len(owner):
                changed = list(owner)
                changed[key] = value
                self._assign(target.value, changed)
        elif isinstance(target, (_ast.Tuple, _ast.List)):
            fits = isinstance(value, (list, tuple)) and len(value) == len(target.elts)
            rest = value if isinstance(value, Unknown) or value is ABSENT else NOT_READ
            for place, part in enumerate(target.elts):
                self._assign(part, value[place] if fits else rest)

    def _end(self, unit: Unit, at: int, depth: int) -> int:
        """The first line after the block that a line heads."""
        depths = self._depths[unit.name]
        at += 1
        while at < len(depths) and depths[at] > depth:
            at += 1
        return at

    def _branch(self, unit: Unit, at: int, depth: int, text: str) -> tuple[int, int]:
        other = end = self._end(unit, at, depth)
        if end < len(unit.lines) and self._depths[unit.name][end] == depth and unit.lines[end][depth:] == "else":
            end = self._end(unit, end, depth)
        test = truth(self.text_value(text))
        if not isinstance(test, Unknown):
            start = at + 1 if test else other + 1
            status = self._block(unit, start, depth + 1) if test or end > other else _NEXT
            return (_NEXT if status == _STOPPED and not self._maybe else status), end
        self._maybe.append(test)
        one, writes = self._tried(unit, at + 1, depth + 1)
        two, others = self._tried(unit, other + 1, depth + 1) if end > other else (_NEXT, {})
        self._maybe.pop()
        if _STOPPED in (one, two):
            kept, status = (others, two) if one == _STOPPED else (writes, one)
            for owner, key in ((owner, key) for (_, key), (owner, _) in kept.items()):
                self._put(owner, key, kept[id(owner), key][1])
            return status, end
        self._join(test, writes, others)
        if one == two:
            return one, end
        self._maybe.append(test)  # one branch left the function or the loop: the rest is conditional
        return _NEXT, end

    def _tried(self, unit: Unit, at: int, depth: int) -> tuple[int, _Writes]:
        """Follows a branch, takes back what it wrote, and returns that."""
        outer, self._journal = self._journal, []
        unsure = len(self._maybe)
        status = self._block(unit, at, depth)
        del self._maybe[unsure:]
        writes: _Writes = {(id(owner), key): (owner, owner.get(key, ABSENT)) for owner, key, _ in self._journal}
        for owner, key, old in reversed(self._journal):
            if old is ABSENT:
                owner.pop(key, None)
            else:
                owner[key] = old
        self._journal = outer
        return status, writes

    def _join(self, test: Unknown, one: _Writes, two: _Writes) -> None:
        for place, (owner, _) in {**one, **two}.items():
            key = place[1]
            old = owner.get(key, ABSENT)
            left, right = one.get(place, (owner, old))[1], two.get(place, (owner, old))[1]
            self._put(owner, key, left if same(left, right) else merged(test, left, right))

    def _loop(self, unit: Unit, at: int, depth: int, text: str) -> tuple[int, int]:
        end = self._end(unit, at, depth)
        target, _, items = text.partition(" in ")
        owner = self.text_value(items)
        try:
            values = None if isinstance(owner, Unknown) else _iterable(owner)
        except ValueError:
            values = None
        tree = tree_of(target)
        if values is None:
            test = owner if isinstance(owner, Unknown) else NOT_READ
            self._maybe.append(test)
            self._assign(tree, test)
            _, writes = self._tried(unit, at + 1, depth + 1)
            self._maybe.pop()
            for (_, key), (written, _) in writes.items():
                self._put(written, key, test)
            return _NEXT, end
        for value in values:
            self._assign(tree, value)
            status = self._block(unit, at + 1, depth + 1)
            if status == _BREAK:
                break
            if status in (_LEFT, _STOPPED):
                return status, end
        return _NEXT, end

    # Guards

    def _check(self, line: str) -> int:
        value = truth(self.text_value(condition_of(line)[0]))
        if isinstance(value, Unknown):
            self._is_open(line, merged(value, *self._maybe))
        elif not value:
            self._violated(line)
            return _STOPPED if self._maybe else _NEXT
        return _NEXT

    def _violated(self, line: str) -> None:
        if self._maybe:
            self._is_open(line, merged(*self._maybe))
        else:
            guard = self._guard(line)
            self.refusals.append(Refusal(guard, self._values(guard.condition)))

    def _is_open(self, line: str, unknown: Unknown) -> None:
        if UNREADABLE not in unknown.names:
            self.open.append(Open(self._guard(line), tuple(sorted(unknown.names))))

    def _guard(self, line: str) -> Guard:
        condition, message = condition_of(line)
        unit = self._calls[-1]
        return Guard(self.program.repo, unit.path, unit.name, slug_of(unit.name, condition), condition, message)

    def _values(self, condition: str) -> tuple[tuple[str, object], ...]:
        found: dict[str, object] = {}
        for name, tree in names_in(tree_of(condition)):
            value = self.value(tree)
            if not isinstance(value, (Unknown, Thing)) and name.partition(".")[0] in self.frame:
                found[name] = value
        return tuple(found.items())


def names_in(tree: Any) -> list[tuple[str, Any]]:
    """The names and fields that an expression reads, `args.x` as one, each with its tree; `getattr(args, 'x')` too."""
    if isinstance(tree, _ast.Name):
        return [(tree.id, tree)]
    if isinstance(tree, _ast.Attribute) and isinstance(tree.value, _ast.Name):
        return [(f"{tree.value.id}.{tree.attr}", tree)]
    if isinstance(tree, _ast.Call) and isinstance(tree.func, _ast.Name):
        if (
            tree.func.id == "getattr"
            and isinstance(tree.args[0], _ast.Name)
            and isinstance(tree.args[1], _ast.Constant)
        ):
            return [(f"{tree.args[0].id}.{tree.args[1].value}", tree)]
        return [found for part in tree.args for found in names_in(part)]
    found: list[tuple[str, Any]] = []
    for field in tree._fields:
        part = getattr(tree, field, None)
        for item in part if isinstance(part, list) else [part]:
            if isinstance(item, _ast.AST):
                found += names_in(item)
    return found


def slug_of(function: str, condition: str) -> str:
    """A guard's stable name: the function, the settings that its condition reads, and a digest of the condition.

    >>> slug_of("validate_args", "args.tp % args.cp == 0")
    'validate_args/tp-cp-2f9d'
    """
    names = dict.fromkeys(name.partition(".")[2] or name for name, _ in names_in(tree_of(condition)))
    words = "-".join(names)[:60].rstrip("-") or "always"
    return f"{function}/{words}-{crc32(condition.encode()) & 0xFFFF:04x}"


def independent(refusals: list[Refusal]) -> tuple[Refusal, ...]:
    """The first refusal of each function that reads no setting of an earlier one: those that are independent of it."""
    kept: list[Refusal] = []
    seen: set[str] = set()
    functions: set[str] = set()
    for refusal in refusals:
        names = {name.partition(".")[2] for name, _ in names_in(tree_of(refusal.guard.condition))} - {""}
        if refusal.guard.function not in functions and not names & seen:
            kept.append(refusal)
        functions.add(refusal.guard.function)
        seen |= names
    return tuple(kept)
