"""Python's own functions and methods of plain values, as followed code calls them."""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING, Any

from follow.expressions import is_known
from follow.values import UNKNOWN, Builtin, Class, Function, Member, Node, Unknown

if TYPE_CHECKING:
    from follow.objects import Objects

_PLAIN: dict[str, Any] = {
    "str": str, "int": int, "float": float, "bool": bool, "list": list, "tuple": tuple, "dict": dict, "set": set,
    "sorted": sorted, "max": max, "min": min, "range": range, "sum": sum, "any": any, "all": all, "abs": abs,
    "len": len, "divmod": divmod,
    "zip": lambda *items: list(zip(*items)), "enumerate": lambda *items: list(enumerate(*items)),
}  # fmt: skip
_TYPES = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "tuple": tuple, "dict": dict}
_METHODS = {
    str: "lower upper startswith endswith split strip replace join format removeprefix removesuffix partition title",
    dict: "get keys items values copy",
    list: "index count copy",
    tuple: "index count",
}
_CHANGES = {list: ("append", "extend", "insert", "remove", "pop"), dict: ("update", "pop", "setdefault")}


def spoil(value: Any) -> None:
    """Code that is not followed may have changed what it was given."""
    if isinstance(value, Node):
        value.spoil()
    elif isinstance(value, list):
        for item in value:
            spoil(item)
        value[:] = [UNKNOWN]
    elif isinstance(value, dict):
        for item in value.values():
            spoil(item)
            value.update(dict.fromkeys(value, UNKNOWN))


def call_builtin(within: Objects, function: Builtin, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The value of the call; `UNKNOWN` where it is not known."""
    name, owner = function
    if name in ("nothing", "print"):
        return None
    if name == "opaque":
        for value in (*args, *kwargs.values()):
            spoil(value)
        return UNKNOWN
    if name == "fill":
        node, kind = owner
        if node is None:
            node, *args = args
        within.fill(node, kind, args, kwargs)
        return None
    if name == "set":
        args[0].fields[args[1]] = UNKNOWN if within.world.doubts else args[2]
        return None
    if owner is not None:
        return _method(within, name, owner, args, kwargs)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(within, *args, **kwargs)
    if name not in _PLAIN or not is_known([*args, *kwargs.values()]):
        return UNKNOWN
    if any(isinstance(value, Node) for value in args) and name not in ("list", "tuple"):
        return UNKNOWN
    return _PLAIN[name](*args, **kwargs)


def _method(within: Objects, name: str, owner: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    for kind, names in _CHANGES.items():
        if isinstance(owner, kind) and name in names:
            keeps = name == "append" or (kind is dict and name != "update")  # what it is handed stays in it as it is
            if within.world.doubts or not is_known(args[: kind is dict] if keeps else args):
                spoil(owner)
                return UNKNOWN
            return getattr(owner, name)(*args, **kwargs)
    for kind, allowed in _METHODS.items():
        if isinstance(owner, kind) and name in allowed.split():
            known = is_known([*args[: 1 if kind is dict else None], *kwargs.values()])
            if not known or (kind is not dict and not is_known(owner)):
                return UNKNOWN
            found = getattr(owner, name)(*args, **kwargs)
            return list(found) if kind is dict and name in ("keys", "items", "values") else found
    spoil(owner)
    return UNKNOWN


def _isinstance(within: Objects, value: Any, kind: Any) -> Any:
    if type(kind) is tuple:
        found = [_isinstance(within, value, one) for one in kind]
        return True if True in found else UNKNOWN if any(isinstance(one, Unknown) for one in found) else False
    if isinstance(value, Unknown):
        return UNKNOWN
    if isinstance(kind, Builtin) and kind.name in _TYPES:
        if isinstance(value, Member):
            return UNKNOWN
        return isinstance(value, _TYPES[kind.name])
    if not isinstance(value, Node):
        return False if isinstance(kind, Class) and not isinstance(value, Member | Function) else UNKNOWN
    order = within.world.mro(value.kind) if value.kind else None
    if order is None or not isinstance(kind, Class):
        return UNKNOWN
    return any(item.code is kind.code for item in order)


def _issubclass(within: Objects, kind: Any, base: Any) -> Any:
    order = within.world.mro(kind) if isinstance(kind, Class) else None
    if order is None or not isinstance(base, Class):
        return UNKNOWN
    return any(item.code is base.code for item in order)


def _fields(within: Objects, value: Any) -> Any:
    """`dataclasses.fields`, with `name` and `init` alone."""
    kind = value.kind if isinstance(value, Node) else value
    if not isinstance(kind, Class) or within.world.mro(kind) is None:
        return UNKNOWN
    return tuple(
        Node(fields={"name": name, "init": "init=False" not in ast.unparse(line)})
        for name, line, _ in within.world.fields(kind)
    )


def _hasattr(within: Objects, owner: Any, name: Any) -> Any:
    if not isinstance(owner, Node) or not isinstance(name, str):
        return False if owner is None and isinstance(name, str) and not name.startswith("__") else UNKNOWN
    if name in owner.fields:
        return True
    if owner.is_open or owner.kind is None:
        return UNKNOWN
    return UNKNOWN if _is_named(within, owner.kind, name) else False


def _is_named(within: Objects, kind: Class, name: str) -> bool:
    order = within.world.mro(kind) or (kind,)
    return any(getattr(line, "name", "") == name or name in _targets(line) for item in order for line in item.code.body)


def _targets(line: Any) -> list[str]:
    targets = [*getattr(line, "targets", ()), getattr(line, "target", None)]
    return [target.id for target in targets if hasattr(target, "id")]


def _getattr(within: Objects, owner: Any, name: Any, *default: Any) -> Any:
    if not isinstance(name, str):
        return UNKNOWN
    there = _hasattr(within, owner, name)
    if there is False:
        return default[0] if default else UNKNOWN
    return within.field(owner, name)


def _setattr(within: Objects, owner: Any, name: Any, value: Any) -> None:
    if isinstance(name, str):
        within.set_field(owner, name, value)
    else:
        spoil(owner)


def _deepcopy(within: Objects, value: Any, *_: Any) -> Any:
    return _copied(value, {})


def _copied(value: Any, seen: dict[int, Any]) -> Any:
    if isinstance(value, Node):
        if id(value) not in seen:
            seen[id(value)] = made = Node(value.kind, {}, value.model, value.is_open)
            made.fields = {name: _copied(item, seen) for name, item in value.fields.items()}
        return seen[id(value)]
    if isinstance(value, dict):
        return {key: _copied(item, seen) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copied(item, seen) for item in value)
    return value


def _replace(within: Objects, value: Any, **kwargs: Any) -> Any:
    if not isinstance(value, Node):
        return UNKNOWN
    if value.kind is not None and within.world.method(value.kind, "__post_init__"):
        return Node(value.kind)
    return Node(value.kind, {**value.fields, **kwargs}, value.model, value.is_open)


def _partial(within: Objects, function: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(function, Function):
        return function._replace(bound=(*function.bound, *args), named={**function.named, **kwargs})
    return UNKNOWN


def _copy(within: Objects, value: Any) -> Any:
    return copy.copy(value) if isinstance(value, list | dict) else UNKNOWN


_SPECIAL: dict[str, Any] = {
    "isinstance": _isinstance,
    "issubclass": _issubclass,
    "fields": _fields,
    "hasattr": _hasattr,
    "getattr": _getattr,
    "setattr": _setattr,
    "deepcopy": _deepcopy,
    "replace": _replace,
    "partial": _partial,
    "copy": _copy,
    "cast": lambda within, kind, value: value,
    "type": lambda within, value: UNKNOWN,
}
