"""The functions that expressions of the validators may call: Python's own over known values, and a few of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Protocol

from megatron_hcp.validators.operations import MOST_ITEMS, iterable
from megatron_hcp.validators.program import REQUIRED
from megatron_hcp.validators.values import ABSENT, NOT_READ, STUMBLES, NotKnown, Symbol, Thing, merged, truth

_TYPES: Mapping[str, Any] = {
    "list": list, "tuple": tuple, "int": int, "float": float, "str": str, "bool": bool, "set": frozenset, "dict": Thing,
}  # fmt: skip
_MISSING = Symbol(REQUIRED)
_METHODS: Mapping[type, frozenset[str]] = {
    str: frozenset(("lower", "upper", "split", "strip", "lstrip", "rstrip", "startswith", "endswith", "count",
                    "replace", "join", "isdigit", "find", "removeprefix", "removesuffix")),
    list: frozenset(("count", "index")),
    tuple: frozenset(("count", "index")),
    frozenset: frozenset(("issubset", "issuperset", "union", "intersection", "difference", "isdisjoint")),
}  # fmt: skip


class Evaluator(Protocol):
    """What the functions need of the evaluation that calls them."""

    def change(self, thing: Thing, name: Any, value: Any) -> None: ...

    def fields_of(self, name: str) -> list[str] | None: ...

    def made(self, kind: str, fields: dict[str, Any], key: str | None) -> Any: ...

    def method_of(self, kind: str, name: str) -> str | None: ...

    def kinds_of(self, kind: str) -> frozenset[str] | None: ...

    def set_variable(self, name: Any, value: Any) -> None: ...

    def refuse(self, condition: str, message: str, values: tuple[tuple[str, object], ...]) -> None: ...


def _getattr(evaluator: Evaluator, given: list[Any]) -> Any:
    owner, name = given[:2]
    if isinstance(owner, Thing) and isinstance(name, str):
        found = owner.fields.get(name, ABSENT)
        if found is not ABSENT:
            return found
        return given[2] if len(given) > 2 and owner.is_closed else NOT_READ
    return merged(owner, name)


def _hasattr(evaluator: Evaluator, given: list[Any]) -> Any:
    owner, name = given
    if isinstance(owner, Thing) and isinstance(name, str):
        if name in owner.fields or evaluator.method_of(owner.kind, name) is not None:
            return True
        return False if owner.is_closed else NOT_READ
    return merged(owner, name)


def _setattr(evaluator: Evaluator, given: list[Any]) -> Any:
    owner, name, value = given
    if isinstance(owner, Thing) and isinstance(name, NotKnown):
        for field in list(owner.fields):
            evaluator.change(owner, field, name)
    elif isinstance(owner, Thing) and isinstance(name, str):
        evaluator.change(owner, name, value)
    return None


def _isinstance(evaluator: Evaluator, given: list[Any]) -> Any:
    value, kinds = given
    if isinstance(value, NotKnown):
        return value
    kinds = tuple(map(str, kinds)) if isinstance(kinds, tuple) else (str(kinds),)
    if isinstance(value, Thing) and value.kind != "dict":
        own = evaluator.kinds_of(value.kind)
        if own is None:
            return False if all(kind in _TYPES for kind in kinds) else NOT_READ
        return not own.isdisjoint(kinds)
    if isinstance(value, Symbol):
        return False if all(kind in _TYPES for kind in kinds) else any(value.startswith(f"{kind}.") for kind in kinds)
    known = tuple(_TYPES[kind] for kind in kinds if kind in _TYPES)
    return isinstance(value, known)


def _copy_fields(evaluator: Evaluator, given: list[Any]) -> Any:
    """Gives a dict the fields of a class that a namespace has: `kw[name] = getattr(args, name)` for each."""
    kind, owner, target = given
    names = evaluator.fields_of(str(kind))
    if names is not None and isinstance(owner, Thing) and isinstance(target, Thing):
        for name in names:
            if name in owner.fields:
                evaluator.change(target, name, owner.fields[name])
    return None


def _with_defaults(evaluator: Evaluator, given: list[Any]) -> Any:
    """Gives a whole section of settings the defaults of a class for what it leaves out, as pydantic does."""
    section, kind = given
    if isinstance(section, Thing) and section.is_closed:
        for name, value in evaluator.made(str(kind), {}, None).fields.items():
            if name not in section.fields and value is not NOT_READ and value != _MISSING:
                evaluator.change(section, name, value)
    return None


def _model_validate(evaluator: Evaluator, given: list[Any]) -> Any:
    """A section of settings as a class of pydantic's takes it: with its defaults, and refused without a field that
    has none."""
    kind, section = given
    if isinstance(section, Thing) and section.is_closed:
        where, fields = section.key or "config", evaluator.made(str(kind), {}, None).fields
        own = {name: section.fields[name] for name in fields if name in section.fields}
        values = tuple((f"{where}.{name}", value) for name, value in own.items() if isinstance(value, (str, int)))
        for name, value in fields.items():
            if value == _MISSING and name not in own:
                evaluator.refuse(f"{name!r} in {where}", f"{kind}: {name}: Field required", values)
        _with_defaults(evaluator, [section, kind])
    return section


def _instantiate(evaluator: Evaluator, given: list[Any]) -> Any:
    """Makes objects of a section of settings and those in it, the inner ones first: of the class that `_target_` names.

    Source: `hydra.utils.instantiate`.
    """
    section = given[0]
    if not isinstance(section, Thing) or section.kind != "dict":
        return section
    fields = {name: _instantiate(evaluator, [value]) for name, value in section.fields.items()}
    target = fields.pop("_target_", None)
    if not isinstance(target, str) or not target:
        return Thing(fields, key=section.key)
    return evaluator.made(target.rpartition(".")[2], fields, section.key)


def _fields(evaluator: Evaluator, given: list[Any]) -> Any:
    names = evaluator.fields_of(given[0].kind if isinstance(given[0], Thing) else str(given[0]))
    return NOT_READ if names is None else [Thing({"name": name}) for name in names]


def _plain(function: Callable[..., Any]) -> Callable[[Evaluator, list[Any]], Any]:
    """A function of Python's own over known values."""

    def call(_: Evaluator, given: list[Any]) -> Any:
        values = [list(iterable(one)) if isinstance(one, (Thing, range)) else one for one in given]
        if any(isinstance(one, NotKnown) for one in values):
            return merged(*values)
        if any(isinstance(one, (list, tuple)) and any(isinstance(item, NotKnown) for item in one) for one in values):
            return len(values[0]) if function is len else merged(*values)
        return function(*values)

    return call


def _any(items: list[Any], stops_at: bool) -> Any:
    if isinstance(items[0], NotKnown):
        return items[0]
    tests = [truth(item) for item in iterable(items[0])]
    unknown = [test for test in tests if isinstance(test, NotKnown)]
    if any(test is stops_at for test in tests):
        return stops_at
    return merged(*unknown) if unknown else not stops_at


def _unrolled(pattern: Any, text: Any) -> Any:
    """A text with its repetitions written out, as pipeline layouts have them: `(tt|)*3`, `t*4`.

    Source: megatron/core/transformer/pipeline_parallel_layer_layout.py `parse_str_to_list`.
    """
    if isinstance(text, NotKnown):
        return text
    if pattern not in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)") or len(text) > MOST_ITEMS:
        return NOT_READ
    import re

    if any(int(times) > MOST_ITEMS for times in re.findall(r"\*(\d{1,9})", text)):
        return NOT_READ
    if pattern[0] == "(":
        return re.sub(r"(.)\*(\d+)", lambda found: found[1] * int(found[2]), text)
    if re.search(r"\([^()]*\(", text) is not None:  # one group in another is no layout
        return NOT_READ
    return re.sub(r"\(([^()]+)\)\*(\d+)", lambda found: found[1] * int(found[2]), text)


def _range(*given: int) -> Any:
    found = range(*given)
    return list(found) if len(found) <= MOST_ITEMS else NOT_READ


BUILTIN: Mapping[str, Callable[[Evaluator, list[Any]], Any]] = {
    "getattr": _getattr,
    "hasattr": _hasattr,
    "setattr": _setattr,
    "setenv": lambda evaluator, given: evaluator.set_variable(*given),
    "isinstance": _isinstance,
    "fields": _fields,
    "copy_fields": _copy_fields,
    "instantiate": _instantiate,
    "with_defaults": _with_defaults,
    "model_validate": _model_validate,
    "exists": lambda _, given: STUMBLES if given[0] is None else NOT_READ,
    "works": lambda _, given: given[0] is not STUMBLES and (given[0] if isinstance(given[0], NotKnown) else True),
    "any": lambda _, given: _any(given, True),
    "all": lambda _, given: _any(given, False),
    "bool": lambda _, given: truth(given[0]),
    "len": _plain(len),
    "int": _plain(int),
    "float": _plain(float),
    "str": _plain(str),
    "abs": _plain(abs),
    "min": _plain(min),
    "max": _plain(max),
    "sum": _plain(sum),
    "sorted": _plain(sorted),
    "round": _plain(round),
    "list": _plain(list),
    "tuple": _plain(tuple),
    "set": _plain(frozenset),
    "frozenset": _plain(frozenset),
    "prod": _plain(prod),
    "unrolled": lambda _, given: _unrolled(*given),
    "range": _plain(_range),
    "zip": _plain(lambda *items: list(zip(*items))),
    "enumerate": _plain(lambda items: list(enumerate(items))),
}


def method(owner: Any, name: str, given: list[Any]) -> Any:
    """What a method of a plain value returns; `NOT_READ` for one that isn't in the list of those without effects."""
    if any(isinstance(item, NotKnown) for item in given):
        return merged(*given)
    allowed = _METHODS.get(type(owner), frozenset())
    return getattr(owner, name)(*given) if name in allowed else NOT_READ
