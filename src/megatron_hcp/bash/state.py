"""The variables and arguments of a followed script, and what is known about those that it does not set."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from megatron_hcp.bash.arith import Arithmetic, Undecidable
from megatron_hcp.bash.merge import merged, merged_items
from megatron_hcp.bash.reason import ByVariable, RunTime
from megatron_hcp.bash.syntax import Script
from megatron_hcp.bash.value import (
    Field,
    Hole,
    Items,
    Lit,
    OneOf,
    Part,
    ScriptText,
    Span,
    Unseen,
    Value,
    as_default,
    reason_of,
    text_of,
)
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.ground.secrets import is_secret_name

MAX_VALUE = 200_000
PWD = "PWD"
SOURCE = "BASH_SOURCE"
_AT_RUN_TIME_NAMES = (
    "OLDPWD HOME USER LOGNAME HOSTNAME HOSTTYPE RANDOM SECONDS LINENO UID EUID PATH LD_LIBRARY_PATH TMPDIR SHELL "
    "BASHPID PPID BASH_VERSION DIRSTACK FUNCNAME PIPESTATUS EPOCHSECONDS OPTARG OPTIND REPLY"
)
_AT_RUN_TIME = frozenset(_AT_RUN_TIME_NAMES.split())
_OF_THE_USER = ("HOME", "USER")
"""Those of them that a job has like the shell that submits it: a rendered script can write them down."""
_OWN_DEFAULT = re.compile(rb"\b(\w+)\+?=[\"']?\$\{?\1\b")


def _size_of(value: Iterable[Part]) -> int:
    """Characters that a value holds, its choices included."""
    return sum(
        len(part.text) if isinstance(part, Lit) else sum(map(_size_of, part.options)) if isinstance(part, OneOf) else 1
        for part in value
    )


class Var(NamedTuple):
    """A variable: `value` if it is plain, `items` if an array. `exported` is None if only on some paths."""

    value: Value | None
    items: Items | None = None
    exported: bool | None = False
    span: Span | None = None


Preset = Callable[[str, Span], Value | None]
"""The value that a variable has from outside, at the place that reads it; None where nothing sets it."""


def assigned_names(script: Script) -> dict[str, tuple[ScriptText, int]]:
    """Where a script first sets each name, but for those that it only gives a default: `A=${A:-x}`."""
    text, match = script.text, _OWN_DEFAULT.match
    return {name: (text, start) for start, name in reversed(script.assigned) if match(text.data, start) is None}


class State:
    """The variables of a running script, and where it stands."""

    def __init__(self, script: Script, preset: Preset) -> None:
        self.script = script
        self.preset = preset
        self.depth = self.steps = 0
        """How many statements have been followed so far."""
        self.work = 0.0
        """What long texts and lists have cost so far, in units of the time that following a statement takes."""
        self.vars: dict[str, Var] = {}
        self.positional: Items | None = None
        """The arguments of the script or of the function that runs; None where those of the script are not known."""
        self.sourced: str | None = None
        """What may have set any variable, a file or a command's output, and the line that takes it in."""
        self.sourced_file = ""
        self.taking: RunTime | None = None  # the script's text that takes it in, for the job
        self.prints: Callable[[Any, Items, Mapping[str, Any]], Value | None] = lambda *_: None  # in `$(…)`
        self.differs_by_task: Callable[[str], bool] = lambda name: False  # whether a variable does
        self.submitting: Collection[str] = ()  # commands that count although `$(…)` captures what they print
        self.file = script.text.file
        self.name = f"./{self.file.rpartition('/')[2]}"  # `$0`, as seen from the script's folder
        self.is_copied = False  # whether a copy of the script runs, under another name
        self._stand_in(self.name, ".")
        self.told: Mapping[str, str] = {}
        """Values that the user states for variables which the script leaves open."""
        self.to_export: set[str] = set()  # names that are exported before they are set
        self.assigned = assigned_names(script)
        """Where the script first sets a name: above, it has the value from outside, unless a condition has read it."""
        self.used_arguments = self.is_shifted = self.globs_otherwise = self.ends_on_errors = False
        self.tested: set[str] = set()
        """Names that a condition has read before the script sets them: a value that they then get is a default."""

    def _stand_in(self, file: str, folder: str | None = None) -> None:
        """Records which file is followed (`$BASH_SOURCE`) and, at the start, in which folder (`$PWD`)."""
        path = Hole(f"{SOURCE} is known only where the script runs", self.here, file)
        self.vars[SOURCE] = Var(None, (Field((path,), self.here),))
        if folder is not None:
            place = Hole(f"{PWD} is known only where the script runs", self.here, folder, PWD)
            self.vars[PWD] = Var((place,), None, False, self.here)

    @property
    def here(self) -> Span:
        """The start of the text that is being followed, for what has no place of its own."""
        return (self.source, 0, 0)

    @property
    def source(self) -> ScriptText:
        """The text that is being followed."""
        return self.script.text

    def takes_in(self, what: str, how: str, span: Span) -> None:
        """Records that a line takes in something unknown that may set any variable."""
        place = span[0].location(span[1], span[1])
        where = f"line {place.line}" + ("" if place.file == self.file else f" of {place.file}")
        self.sourced = f"{what}, which {where} {how}"
        self.sourced_file, self.taking = what if how == "sources" else "", None

    def lookup(self, name: str, span: Span) -> tuple[Value, bool]:
        """A variable's value, and whether it counts as set (which `${x:-default}` tests)."""
        var = self.vars.get(name)
        if name in self.told and (var is None or (var.items is None and text_of(var.value or ()) is None)):
            return (Lit(self.told[name], span, False),), True
        if var is not None:
            if var.value is not None:
                return var.value, True
            items = var.items or ()
            if not items:
                return (), False
            return (items[0].parts if isinstance(items[0], Field) else (Hole(items[0].reason, span),)), True
        if name.isdecimal():
            return self._argument(int(name.lstrip("0")[:9] or "0"), span)  # no script has more arguments
        preset = self.preset(name, span)
        if preset is not None:
            return preset, True
        if name in _AT_RUN_TIME:
            carried = name if name in _OF_THE_USER else ""
            return (Hole(f"{name} is known only where the script runs", span, variable=carried),), True
        text, place = self.assigned.get(name, (None, 0))
        if text is not None and (text is not span[0] or place <= span[1] or name in self.tested):
            return (), False
        outside = name if name.isidentifier() else ""
        if self.sourced is not None:
            why = ByVariable.of(f"{name} may be set by {self.sourced}", name)
            why.file, why.giver = self.sourced_file, self.sourced
            return (Hole(why, span, outside=outside, taken_in=self.taking),), True
        reason = ByVariable.of(f"{name} is not set in this script", name)
        return (Hole(reason, span, outside=outside),), False

    def _argument(self, number: int, span: Span) -> tuple[Value, bool]:
        if number == 0:
            return (Hole("$0 is known only where the script runs", span, self.name),), True
        if self.positional is None:
            why = ByVariable.of(f"${number} is an argument of the script", str(number))
            return (Hole(why, span, outside="" if self.is_shifted or self.sourced else str(number)),), False
        for place, item in enumerate(self.positional[:number]):
            if not isinstance(item, Field):
                return (Hole(item.reason, span),), True
            if place == number - 1:
                return item.parts, True
        return (), False

    def items_of(self, name: str, span: Span) -> Items:
        """The words of `"${name[@]}"`, also for `@` and `*` (the arguments)."""
        if name in ("@", "*"):
            if self.positional is None:
                self.used_arguments = True
            return self.positional or ()
        var = self.vars.get(name)
        if var is not None:
            if var.items is not None:
                return var.items
            value = var.value or ()
            return (Field(value, var.span or span),) if value else ()
        value, is_set = self.lookup(name, span)
        if name in self.told:
            return tuple(Field((Lit(word, span, False),), span) for word in self.told[name].split())
        if not value or (not is_set and self._sets_arrays):
            return ()
        return (Field(value, span),) if is_set and text_of(value) is not None else (Unseen(reason_of(value), span),)

    @property
    def _sets_arrays(self) -> bool:
        """Whether the script has arrays of its own: one that it doesn't set is empty, since none can be exported."""
        return any(var.items and name != SOURCE for name, var in self.vars.items())

    def assign(self, name: str, value: Value, span: Span, *, append: bool = False, exported: bool = False) -> None:
        """Sets a plain variable; `append` is `+=`."""
        before = self.vars.get(name)
        if append:
            if before is not None and before.items is not None:
                self.assign_array(name, (Field(value, span),), span, append=True)
                return
            value = self.lookup(name, span)[0] + value
        elif name in self.tested:
            value = as_default(value, name)
        size = _size_of(value)
        self.pay(size + 50 * len(value), 1000)
        if size > MAX_VALUE:
            value = (Hole(f"{name} is too long", span),)
        was = before.exported if before is not None else name in self.to_export
        self.vars[name] = Var(value, None, True if exported else was, span)

    def assign_array(self, name: str, items: Items, span: Span, *, append: bool = False) -> None:
        before = self.vars.get(name)
        if append:
            items = self.items_of(name, span) + items
        self.pay(len(items), 20)
        if len(items) > MAX_VALUE // 40:
            items = (Unseen(f"{name} is too long", span),)
        self.vars[name] = Var(None, items, before.exported if before is not None else False, span)

    def forget(self, name: str, reason: str, span: Span) -> None:
        """Makes a variable unknown; an array keeps its known leading words."""
        before = self.vars.get(name)
        if before is not None and before.items is not None:
            self.vars[name] = before._replace(items=(*before.items, Unseen(reason, span)))
        else:
            self.vars[name] = Var((Hole(reason, span),), None, before.exported if before else False, span)

    def pay(self, work: int, per_step: int) -> None:
        """Counts work; `per_step` of it takes as long as following one statement."""
        self.work += work / per_step

    def arithmetic(self, text: str) -> int:
        """Raises: Undecidable."""
        self.pay(len(text), 20)
        span = (self.source, 0, 0)

        def read(name: str) -> str:
            value, _ = self.lookup(name, span)
            known = text_of(value)
            if known is None:
                raise Undecidable(reason_of(value))
            self.pay(len(known), 20)
            return known

        def write(name: str, text: str) -> None:
            self.assign(name, (Lit(text, span, False),), span)

        return Arithmetic(read, write).value(text)

    def meet(self, before: dict[str, Var], after: Sequence[dict[str, Var]], reason: str, span: Span) -> None:
        """Continues after branches that left the variables `after`; values that differ become choices."""
        if len(after) == 1:
            self.vars = after[0]
            return
        self.vars = dict(before)
        self.pay(sum(map(len, after)), 100)
        changed: dict[str, dict[int, Var | None]] = {}
        for number, env in enumerate(after):
            for name, var in env.items():
                if before.get(name) is not var:
                    changed.setdefault(name, {})[number] = var
            for name in before.keys() - env.keys():
                changed.setdefault(name, {})[number] = None
        for name, left in changed.items():
            if len(left) < len(after):
                left[next(number for number in range(len(after)) if number not in left)] = before.get(name)
            found = list({id(var): var for _, var in sorted(left.items(), key=itemgetter(0))}.values())
            if len(found) > 1:
                self.pay(5 + sum(len(var.items or var.value or ()) for var in found if var is not None), 10)
                self.vars[name] = self._merged(name, found, reason, span)
            elif found[0] is not None:
                self.vars[name] = found[0]
            else:
                self.vars.pop(name, None)

    def _merged(self, name: str, found: Sequence[Var | None], reason: str, span: Span) -> Var:
        known = [var for var in found if var is not None]
        exports = {var.exported if var is not None else False for var in found}
        exported = exports.pop() if len(exports) == 1 else None
        place = known[0].span
        if any(var.items is not None for var in known):
            lists = [
                () if var is None else (Field(var.value or (), var.span or span),) if var.items is None else var.items
                for var in found
            ]
            return Var(None, merged_items(lists, reason, span), exported, place)
        self.vars.pop(name, None)
        if is_secret_name(name):
            return Var((Hole(reason, span),), None, exported, place)  # a choice is shown with its texts
        absent = self.lookup(name, span)[0]
        values = [absent if var is None or var.value is None else var.value for var in found]
        return Var(merged(values, reason, span), None, exported, place)

    def environment(self) -> dict[str, Var]:
        """The exported variables."""
        return {name: var for name, var in self.vars.items() if var.exported is not False}
