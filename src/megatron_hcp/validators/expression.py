"""The value of an expression of the validators, with true, false and unknown.

The notation is a small part of Python's: names, fields, literals, comparisons, `and`, `or`, `not`, arithmetic, `if`
expressions, comprehensions over known lists, and calls of the functions in `BUILTIN` and of the program's own ones.
`...` stands for what could not be read. Python's parser gives the tree (`compile` with its flag for that); nothing is
compiled to code, and nothing of upstream is called.
"""

from __future__ import annotations

import _ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from math import prod
from typing import Any

from megatron_hcp.validators.values import ABSENT, NOT_READ, Symbol, Thing, Unknown, merged, truth

_ONLY_TREE = 0x400
_MOST_ITEMS = 10_000
_LARGEST = 10**30
_FAULTS = (TypeError, ValueError, ZeroDivisionError, IndexError, KeyError, AttributeError, OverflowError)
_OPERATORS: Mapping[type, Callable[..., Any]] = {
    _ast.Add: operator.add, _ast.Sub: operator.sub, _ast.Mult: operator.mul, _ast.Mod: operator.mod,
    _ast.FloorDiv: operator.floordiv, _ast.Div: operator.truediv, _ast.BitAnd: operator.and_,
    _ast.BitOr: operator.or_, _ast.Eq: operator.eq, _ast.NotEq: operator.ne, _ast.Lt: operator.lt,
    _ast.LtE: operator.le, _ast.Gt: operator.gt, _ast.GtE: operator.ge, _ast.USub: operator.neg,
    _ast.UAdd: operator.pos,
}  # fmt: skip
_TYPES: Mapping[str, Any] = {
    "list": list, "tuple": tuple, "int": int, "float": float, "str": str, "bool": bool, "set": frozenset, "dict": Thing,
}  # fmt: skip
_METHODS: Mapping[type, frozenset[str]] = {
    str: frozenset(("lower", "upper", "split", "strip", "lstrip", "rstrip", "startswith", "endswith", "count",
                    "replace", "join", "isdigit", "find", "removeprefix", "removesuffix")),
    list: frozenset(("count", "index")),
    tuple: frozenset(("count", "index")),
    frozenset: frozenset(("issubset", "issuperset", "union", "intersection", "difference", "isdisjoint")),
}  # fmt: skip


PLAIN: Mapping[str, Any] = {"None": None, "True": True, "False": False, "...": NOT_READ}
_BRACKETS = ("(", "[", "{", "lambda", "' ", " '")
_WORD_OPERATORS = {
    "==": _ast.Eq, "!=": _ast.NotEq, "<": _ast.Lt, "<=": _ast.LtE, ">": _ast.Gt, ">=": _ast.GtE,
    "in": _ast.In, "is": _ast.Is,
}  # fmt: skip


@lru_cache(maxsize=10_000)
def tree_of(text: str) -> Any:
    """The tree of an expression's text."""
    return compile(text, "<guard>", "eval", _ONLY_TREE, True).body


class Lambda:
    """A function written as an expression, with the names around it."""

    __slots__ = ("frame", "tree")

    def __init__(self, tree: Any, frame: dict[str, Any]) -> None:
        self.tree, self.frame = tree, frame


class Expressions:
    """Evaluates expressions; what the program's own functions do is in the class that builds on it."""

    frame: dict[str, Any]

    def __init__(self) -> None:
        self.frame = {}

    def call_unit(self, name: str, given: list[Any], named: dict[str, Any]) -> Any:
        raise NotImplementedError

    def has_unit(self, name: str) -> bool:
        """Whether the program has a function or class of that name; alone, expressions have none."""
        return False

    def outside(self, name: str, given: list[Any]) -> Any:
        """The answer of a function about the machine: `env`, `at_least`, `version`, `capability`, `installed`."""
        return NOT_READ

    def change(self, thing: Thing, name: Any, value: Any) -> None:
        raise NotImplementedError

    def fields_of(self, name: str) -> list[str] | None:
        raise NotImplementedError

    def text_value(self, text: str) -> Any:
        """The value of an expression's text. The most frequent kinds need no parser: it takes most of the time."""
        if " and " in text or " or " in text:
            return self._sentence(text)
        words = text.split(" ")
        if len(words) == 1:
            found = self._word(text)
            if found is not ABSENT:
                return found
        elif words[0] == "not" and len(words) == 2:
            found = self._word(words[1])
            if found is not ABSENT:
                found = truth(found)
                return found if isinstance(found, Unknown) else not found
        elif words[1] == "is" and words[-1] == "None" and len(words) in (3, 4):
            found = self._word(words[0])
            if found is not ABSENT:
                return found if isinstance(found, Unknown) else (found is None) is (len(words) == 3)
        elif len(words) == 3 and words[1] in _WORD_OPERATORS:
            left, right = self._word(words[0]), self._word(words[2])
            if left is not ABSENT and right is not ABSENT:
                try:
                    return self._compared(_WORD_OPERATORS[words[1]], left, right)
                except _FAULTS:
                    return NOT_READ
        return self.value(tree_of(text))

    def _sentence(self, text: str) -> Any:
        """The value of parts joined by `and` and `or`; those with brackets or longer texts are parsed."""
        if any(mark in text for mark in _BRACKETS) or (" if " in text):
            return self.value(tree_of(text))
        for word, stops_at in ((" or ", True), (" and ", False)):
            if word in text:
                return self._joined(map(self.text_value, text.split(word)), stops_at)
        return self.value(tree_of(text))

    def _word(self, word: str) -> Any:
        """The value of a plain literal, a name, or a field of one; `ABSENT` if the word is something else."""
        if word in PLAIN:
            return PLAIN[word]
        owner, dot, name = word.partition(".")
        if owner in self.frame:
            if not dot:
                return self.frame[owner]
            return self.field(self.frame[owner], name) if name.isidentifier() else ABSENT
        if word.isdecimal():
            return int(word)
        return word[1:-1] if word[0] == "'" == word[-1] and word.count("'") == 2 and "\\" not in word else ABSENT

    def value(self, tree: Any) -> Any:
        visit = _VISITS.get(type(tree))
        if visit is None:
            return NOT_READ
        try:
            return visit(self, tree)
        except _FAULTS:
            return NOT_READ

    def field(self, owner: Any, name: str) -> Any:
        if isinstance(owner, Thing):
            found = owner.fields.get(name, ABSENT)
            return NOT_READ if found is ABSENT else found
        if isinstance(owner, Unknown):
            return owner
        if isinstance(owner, Symbol):
            if name == "name":
                return str(owner).rpartition(".")[2]
            return NOT_READ if name == "value" else Symbol(f"{owner}.{name}")
        return NOT_READ

    def _name(self, tree: Any) -> Any:
        frame = self.frame
        name = tree.id
        if name in frame:
            return frame[name]
        return Symbol(name)

    def _boolop(self, tree: Any) -> Any:
        return self._joined(map(self.value, tree.values), isinstance(tree.op, _ast.Or))

    def _joined(self, values: Iterable[Any], stops_at: bool) -> Any:
        """The value of `or` (it stops at true) or `and` over values, evaluated one by one."""
        unknown: list[Any] = []
        value: Any = None
        for value in values:
            test = truth(value)
            if isinstance(test, Unknown):
                unknown.append(test)
            elif test is stops_at:
                return value if not unknown else stops_at
        return merged(*unknown) if unknown else value

    def _unary(self, tree: Any) -> Any:
        value = self.value(tree.operand)
        if isinstance(tree.op, _ast.Not):
            value = truth(value)
            return value if isinstance(value, Unknown) else not value
        return value if isinstance(value, Unknown) else _OPERATORS[type(tree.op)](value)

    def _binary(self, tree: Any) -> Any:
        return self.operate(type(tree.op), self.value(tree.left), self.value(tree.right))

    def operate(self, op: type, left: Any, right: Any) -> Any:
        if isinstance(left, Unknown) or isinstance(right, Unknown):
            return merged(left, right)
        if op is _ast.Mult and (_repeats(left, right) or _repeats(right, left)):
            return NOT_READ
        if op is _ast.Mod and isinstance(left, str):
            return NOT_READ
        if isinstance(left, frozenset) and op is _ast.Sub:
            return left - frozenset(right)
        found = _OPERATORS[op](left, right)
        return NOT_READ if isinstance(found, int) and abs(found) > _LARGEST else found

    def _compare(self, tree: Any) -> Any:
        left = self.value(tree.left)
        unknown: list[Any] = []
        for op, part in zip(tree.ops, tree.comparators):
            right = self.value(part)
            found = self._compared(type(op), left, right)
            if isinstance(found, Unknown):
                unknown.append(found)
            elif not found:
                return False
            left = right
        return merged(*unknown) if unknown else True

    def _compared(self, op: type, left: Any, right: Any) -> Any:
        if isinstance(left, Unknown) or isinstance(right, Unknown):
            return merged(left, right)
        if op in (_ast.In, _ast.NotIn):
            found = _contains(right, left)
            return found if isinstance(found, Unknown) else found is (op is _ast.In)
        if op in (_ast.Is, _ast.IsNot):
            alike = left is right or (isinstance(left, Symbol) and left == right)
            return alike is (op is _ast.Is)
        if isinstance(left, (list, tuple)) and any(isinstance(item, Unknown) for item in left):
            return merged(left)
        if isinstance(right, (list, tuple)) and any(isinstance(item, Unknown) for item in right):
            return merged(right)
        return _OPERATORS[op](left, right)

    def _choice(self, tree: Any) -> Any:
        test = truth(self.value(tree.test))
        if isinstance(test, Unknown):
            return merged(test, self.value(tree.body), self.value(tree.orelse))
        return self.value(tree.body if test else tree.orelse)

    def _list(self, tree: Any) -> Any:
        items = list(self._items(tree.elts))
        return tuple(items) if isinstance(tree, _ast.Tuple) else items

    def _set(self, tree: Any) -> Any:
        items = list(self._items(tree.elts))
        return merged(items) if any(isinstance(item, Unknown) for item in items) else frozenset(items)

    def _items(self, trees: Any) -> Iterator[Any]:
        for tree in trees:
            if isinstance(tree, _ast.Starred):
                yield from _iterable(self.value(tree.value))
            else:
                yield self.value(tree)

    def _dict(self, tree: Any) -> Any:
        fields: dict[Any, Any] = {}
        for key, value in zip(tree.keys, tree.values):
            if key is None:
                more = self.value(value)
                if not isinstance(more, Thing):
                    return NOT_READ
                fields |= more.fields
            else:
                name = self.value(key)
                if isinstance(name, Unknown):
                    return name
                fields[name] = self.value(value)
        return Thing(fields)

    def _subscript(self, tree: Any) -> Any:
        owner = self.value(tree.value)
        if isinstance(owner, Unknown):
            return owner
        if isinstance(tree.slice, _ast.Slice):
            parts = [
                self.value(part) if part else None for part in (tree.slice.lower, tree.slice.upper, tree.slice.step)
            ]
            return merged(*parts) if any(isinstance(part, Unknown) for part in parts) else owner[slice(*parts)]
        key = self.value(tree.slice)
        if isinstance(key, Unknown):
            return key
        if isinstance(owner, Thing):
            return owner.fields[key]
        return Symbol(f"{owner}.{key}") if isinstance(owner, Symbol) else owner[key]

    def _text(self, tree: Any) -> Any:
        parts = [
            self.value(part.value) if isinstance(part, _ast.FormattedValue) else part.value for part in tree.values
        ]
        if any(isinstance(part, Unknown) for part in parts):
            return merged(*parts)
        return "".join(map(str, parts)) if all(isinstance(part, (str, int)) for part in parts) else NOT_READ

    def _comprehension(self, tree: Any) -> Any:
        if len(tree.generators) != 1:
            return NOT_READ
        loop = tree.generators[0]
        owner = self.value(loop.iter)
        if isinstance(owner, Unknown):
            return owner
        found: list[Any] = []
        before = dict(self.frame)
        try:
            for item in _iterable(owner):
                self.bind(loop.target, item)
                tests = [truth(self.value(test)) for test in loop.ifs]
                if any(isinstance(test, Unknown) for test in tests):
                    return merged(*tests)
                if all(tests):
                    found.append(
                        (self.value(tree.key), self.value(tree.value))
                        if isinstance(tree, _ast.DictComp)
                        else self.value(tree.elt)
                    )
        finally:
            self.frame.clear()
            self.frame.update(before)
        if isinstance(tree, _ast.DictComp):
            return Thing(dict(found))
        return frozenset(found) if isinstance(tree, _ast.SetComp) else found

    def bind(self, target: Any, value: Any) -> None:
        """Gives names of this frame a value; one that does not fit leaves them unknown."""
        if isinstance(target, _ast.Name):
            self.frame[target.id] = value
        elif isinstance(target, (_ast.Tuple, _ast.List)):
            fits = isinstance(value, (list, tuple)) and len(value) == len(target.elts)
            rest = merged(value) if isinstance(value, Unknown) else NOT_READ
            for place, part in enumerate(target.elts):
                self.bind(part, value[place] if fits else rest)

    def _named(self, tree: Any) -> Any:
        value = self.value(tree.value)
        self.bind(tree.target, value)
        return value

    def _call(self, tree: Any) -> Any:
        given = list(self._items(tree.args))
        named: dict[str, Any] = {}
        for keyword in tree.keywords:
            value = self.value(keyword.value)
            if keyword.arg is not None:
                named[keyword.arg] = value
            elif isinstance(value, Thing):
                named |= value.fields
            else:
                return NOT_READ
        if isinstance(tree.func, _ast.Attribute):
            name = _dotted(tree.func)
            if name is not None and self.has_unit(name):
                return self.call_unit(name, given, named)
            owner = self.value(tree.func.value)
            if isinstance(owner, Thing) and self.has_unit(f"{owner.kind}.{tree.func.attr}"):
                return self.call_unit(f"{owner.kind}.{tree.func.attr}", [owner, *given], named)
            return self._method(owner, tree.func.attr, given)
        if not isinstance(tree.func, _ast.Name):
            return NOT_READ
        name = tree.func.id
        called = self.frame.get(name, name)
        if isinstance(called, Lambda):
            return self._apply(called, given)
        if isinstance(called, Symbol):
            called = str(called)
        if not isinstance(called, str):
            return called if isinstance(called, Unknown) else NOT_READ
        if called in BUILTIN:
            return BUILTIN[called](self, given)
        if self.has_unit(called):
            return self.call_unit(called, given, named)
        return self.outside(called, given)

    def _apply(self, called: Lambda, given: list[Any]) -> Any:
        names = [argument.arg for argument in called.tree.args.args]
        before, self.frame = self.frame, {**called.frame, **dict(zip(names, given))}
        try:
            return self.value(called.tree.body)
        finally:
            self.frame = before

    def _method(self, owner: Any, name: str, given: list[Any]) -> Any:
        if isinstance(owner, Unknown):
            return owner
        if isinstance(owner, Thing) and owner.kind == "dict":
            return self._dict_method(owner, name, given)
        if any(isinstance(item, Unknown) for item in given):
            return merged(*given)
        if type(owner) in _METHODS and name in _METHODS[type(owner)]:
            return getattr(owner, name)(*given)
        return NOT_READ

    def _dict_method(self, owner: Thing, name: str, given: list[Any]) -> Any:
        if name in ("keys", "values", "items"):
            return list(getattr(owner.fields, name)())
        if given and isinstance(given[0], Unknown):
            return given[0]
        default = given[1] if len(given) > 1 else None
        found = owner.fields.get(given[0], default) if name in ("get", "pop") else NOT_READ
        if name == "pop" and given[0] in owner.fields:
            self.change(owner, given[0], ABSENT)
        return found

    def getattr(self, given: list[Any]) -> Any:
        owner, name = given[:2]
        if isinstance(owner, Thing) and isinstance(name, str):
            found = owner.fields.get(name, ABSENT)
            if found is not ABSENT:
                return found
            return given[2] if len(given) > 2 and owner.is_closed else NOT_READ
        return merged(owner, name)

    def hasattr(self, given: list[Any]) -> Any:
        owner, name = given
        if isinstance(owner, Thing) and isinstance(name, str):
            return True if name in owner.fields else (False if owner.is_closed else NOT_READ)
        return merged(owner, name)

    def setattr(self, given: list[Any]) -> Any:
        owner, name, value = given
        if isinstance(owner, Thing) and isinstance(name, str):
            self.change(owner, name, value)
        return None

    def isinstance_(self, given: list[Any]) -> Any:
        value, kinds = given
        if isinstance(value, Unknown):
            return value
        kinds = tuple(map(str, kinds)) if isinstance(kinds, tuple) else (str(kinds),)
        if isinstance(value, Thing) and value.kind != "dict":
            return NOT_READ
        if isinstance(value, Symbol):
            return (
                False if all(kind in _TYPES for kind in kinds) else any(value.startswith(f"{kind}.") for kind in kinds)
            )
        known = tuple(_TYPES[kind] for kind in kinds if kind in _TYPES)
        return isinstance(value, known)

    def copy_fields(self, given: list[Any]) -> Any:
        """Gives a dict the fields of a class that a namespace has: `kw[name] = getattr(args, name)` for each."""
        kind, owner, target = given
        names = self.fields_of(str(kind))
        if names is not None and isinstance(owner, Thing) and isinstance(target, Thing):
            for name in names:
                if name in owner.fields:
                    self.change(target, name, owner.fields[name])
        return None

    def fields_(self, given: list[Any]) -> Any:
        names = self.fields_of(str(given[0]))
        return NOT_READ if names is None else [Thing({"name": name}) for name in names]


def _dotted(tree: Any) -> str | None:
    if isinstance(tree, _ast.Name):
        return str(tree.id)
    owner = _dotted(tree.value) if isinstance(tree, _ast.Attribute) else None
    return None if owner is None else f"{owner}.{tree.attr}"


def _repeats(sequence: Any, times: Any) -> bool:
    return isinstance(sequence, (str, list, tuple)) and isinstance(times, int) and len(sequence) * times > _MOST_ITEMS


def _iterable(value: Any) -> Any:
    if isinstance(value, Thing) and value.kind == "dict":
        return list(value.fields)
    if isinstance(value, (list, tuple, frozenset, range, str)) and not isinstance(value, Symbol):
        if len(value) <= _MOST_ITEMS:
            return sorted(value, key=str) if isinstance(value, frozenset) else value
    raise ValueError("unknown items")


def _contains(owner: Any, item: Any) -> Any:
    if isinstance(owner, Thing):
        return item in owner.fields
    if isinstance(owner, str):
        return isinstance(item, str) and item in owner
    if isinstance(owner, (list, tuple)):
        known = [one for one in owner if not isinstance(one, Unknown)]
        return True if any(one == item for one in known) else merged(owner) if len(known) < len(owner) else False
    return item in owner


def _plain(function: Callable[..., Any]) -> Callable[[Expressions, list[Any]], Any]:
    """A function of Python's own over known values."""

    def call(_: Expressions, given: list[Any]) -> Any:
        values = [list(_iterable(one)) if isinstance(one, (Thing, range)) else one for one in given]
        if any(isinstance(one, Unknown) for one in values):
            return merged(*values)
        if any(isinstance(one, (list, tuple)) and any(isinstance(item, Unknown) for item in one) for one in values):
            return len(values[0]) if function is len else merged(*values)
        return function(*values)

    return call


def _any(items: list[Any], stops_at: bool) -> Any:
    if isinstance(items[0], Unknown):
        return items[0]
    tests = [truth(item) for item in _iterable(items[0])]
    unknown = [test for test in tests if isinstance(test, Unknown)]
    if any(test is stops_at for test in tests):
        return stops_at
    return merged(*unknown) if unknown else not stops_at


def _unrolled(pattern: Any, text: Any) -> Any:
    """A text with its repetitions written out, as pipeline layouts have them: `(tt|)*3`, `t*4`.

    Source: megatron/core/transformer/pipeline_parallel_layer_layout.py `parse_str_to_list`.
    """
    if isinstance(text, Unknown):
        return text
    if pattern not in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)") or len(text) > _MOST_ITEMS:
        return NOT_READ
    import re

    if any(int(times) > _MOST_ITEMS for times in re.findall(r"\*(\d{1,9})", text)):
        return NOT_READ
    return re.sub(pattern, lambda found: found[1] * int(found[2]), text)


def _range(*given: int) -> Any:
    found = range(*given)
    return list(found) if len(found) <= _MOST_ITEMS else NOT_READ


BUILTIN: Mapping[str, Callable[[Expressions, list[Any]], Any]] = {
    "getattr": Expressions.getattr,
    "hasattr": Expressions.hasattr,
    "setattr": Expressions.setattr,
    "isinstance": Expressions.isinstance_,
    "fields": Expressions.fields_,
    "copy_fields": Expressions.copy_fields,
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
_VISITS: Mapping[type, Callable[[Any, Any], Any]] = {
    _ast.Constant: lambda _, tree: NOT_READ if tree.value is ... else tree.value,
    _ast.Name: Expressions._name,
    _ast.Attribute: lambda self, tree: self.field(self.value(tree.value), tree.attr),
    _ast.BoolOp: Expressions._boolop,
    _ast.UnaryOp: Expressions._unary,
    _ast.BinOp: Expressions._binary,
    _ast.Compare: Expressions._compare,
    _ast.IfExp: Expressions._choice,
    _ast.List: Expressions._list,
    _ast.Tuple: Expressions._list,
    _ast.Set: Expressions._set,
    _ast.Dict: Expressions._dict,
    _ast.Subscript: Expressions._subscript,
    _ast.JoinedStr: Expressions._text,
    _ast.ListComp: Expressions._comprehension,
    _ast.GeneratorExp: Expressions._comprehension,
    _ast.SetComp: Expressions._comprehension,
    _ast.DictComp: Expressions._comprehension,
    _ast.Call: Expressions._call,
    _ast.NamedExpr: Expressions._named,
    _ast.Lambda: lambda self, tree: Lambda(tree, self.frame),
}
