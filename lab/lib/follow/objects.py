"""Fields, calls and new objects in followed code."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from follow.builtin import call_builtin, spoil
from follow.expressions import Expressions
from follow.values import UNKNOWN, Builtin, Class, Function, Member, Module, Node, NotFollowed, Unknown

_DEEPEST = 40
_HARMLESS = frozenset("logger logging log warnings os math np torch json re sys print warn_deprecated_model".split())
"""Names of what changes no object that it is handed."""
_MODULES = {"copy.deepcopy": "deepcopy", "dataclasses.replace": "replace", "functools.partial": "partial"}
_GIVE_MODEL = ("to_megatron_provider", "get_model_config")


class _Bridge(NamedTuple):
    """Upstream's AutoBridge for a Hugging Face model."""

    model: Any


class _Super(NamedTuple):
    owner: Node
    after: Class


class Objects(Expressions):
    """What expressions do to objects; `Call` follows the functions."""

    def follow(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        raise NotImplementedError

    def constant(self, module: str, item: ast.expr) -> Any:
        """A module's constant, evaluated once, in its own module."""
        key = (module, ast.unparse(item))
        if key not in self.world.constants:
            self.world.constants[key] = UNKNOWN
            self.world.constants[key] = self.elsewhere(module).value(item)
        return self.world.constants[key]

    def elsewhere(self, module: str) -> Objects:
        return type(self)(self.world, module, depth=self.depth + 1)

    def field(self, owner: Any, name: str) -> Any:
        if isinstance(owner, Node):
            return self._of_node(owner, name)
        if isinstance(owner, _Super):
            method = self.world.method(owner.owner.kind, name, owner.after) if owner.owner.kind else None
            if method is None and name == "__init__" and owner.owner.kind:
                return Builtin("fill", (owner.owner, owner.after))
            return method._replace(bound=(owner.owner,)) if method else Builtin("nothing")
        if isinstance(owner, Class):
            return self._of_class(owner, name)
        if isinstance(owner, Builtin) and owner.name == "object" and name == "__setattr__":
            return Builtin("set")
        if isinstance(owner, Module):
            if f"{owner.name}.{name}" in _MODULES:
                return Builtin(_MODULES[f"{owner.name}.{name}"])
            return self.meaning(owner.name, name) if self.world.modules.file(owner.name) else UNKNOWN
        if isinstance(owner, _Bridge):
            return Builtin("model" if name in _GIVE_MODEL else "opaque", owner)
        if isinstance(owner, Member):
            return str(owner) if name == "name" else UNKNOWN
        if type(owner) in (str, list, dict, tuple):
            return Builtin(name, owner)
        return UNKNOWN

    def _of_node(self, owner: Node, name: str) -> Any:
        if name in owner.fields:
            return owner.fields[name]
        kind = owner.kind
        if kind is None:
            return UNKNOWN
        if name == "__class__":
            return kind
        method = self.world.method(kind, name)
        if method is not None:
            return method._replace(bound=(owner,))
        getter = self._decorated(kind, name, "property")
        if getter is not None:
            return self.follow(getter, [owner], {})
        return self._of_class(kind, name) if not owner.is_open else UNKNOWN

    def _of_class(self, kind: Class, name: str) -> Any:
        if kind.code.name == "AutoBridge":
            return Builtin("bridge" if name in ("from_hf_pretrained", "from_hf_config") else "opaque")
        if name == "__dataclass_fields__":
            return tuple(field for field, _, _ in self.world.fields(kind))
        if name == "__init__":
            return self.world.method(kind, name) or Builtin("fill", (None, kind))
        for item in self.world.mro(kind) or (kind,):
            for line in item.code.body:
                if isinstance(line, ast.Assign) and any(ast.unparse(target) == name for target in line.targets):
                    return Member(name) if self.world.is_enum(item) else self.elsewhere(item.module).value(line.value)
        return UNKNOWN

    def _decorated(self, kind: Class, name: str, decorator: str) -> Function | None:
        for item in self.world.mro(kind) or (kind,):
            for line in item.code.body:
                if not isinstance(line, ast.FunctionDef) or line.name != name:
                    continue
                if [ast.unparse(one) for one in line.decorator_list] == [decorator]:
                    return Function(item.module, line, {"__class__": item})
        return None

    def set_field(self, owner: Any, name: str, value: Any) -> None:
        if not isinstance(owner, Node):
            return
        setter = self._decorated(owner.kind, name, f"{name}.setter") if owner.kind else None
        if setter is not None:
            self.follow(setter, [owner, value], {})
        elif owner.kind and (method := self.world.method(owner.kind, "__setattr__")):
            self.follow(method, [owner, name, value], {})
        else:
            owner.fields[name] = UNKNOWN if self.world.doubts else value

    def call(self, item: ast.Call) -> Any:
        if isinstance(item.func, ast.Name) and item.func.id == "super" and "__class__" in self.names:
            return _Super(
                next(iter(self.names[name] for name in self.names if name == "self")), self.names["__class__"]
            )
        function = self.value(item.func)
        try:
            args = list(self._elements(item.args))
            kwargs = {word.arg: self.value(word.value) for word in item.keywords if word.arg}
            for word in item.keywords:
                if word.arg is None:
                    more = self.value(word.value)
                    if not isinstance(more, dict):
                        raise ValueError("unknown arguments")
                    kwargs |= more
        except ValueError:
            for given in (*item.args, *(word.value for word in item.keywords)):
                spoil(self.value(given.value if isinstance(given, ast.Starred) else given))
            return UNKNOWN
        return self.apply(function, args, kwargs, item)

    def apply(self, function: Any, args: list[Any], kwargs: dict[str, Any], item: ast.Call | None = None) -> Any:
        if isinstance(function, Function):
            if self.depth > _DEEPEST:
                raise NotFollowed("calls too deep")
            return self.follow(function, args, kwargs)
        if isinstance(function, Class):
            return self.new(function, args, kwargs)
        if isinstance(function, Builtin):
            if function.name == "bridge":
                return _Bridge(args[0] if args and isinstance(args[0], str) else "")
            if function.name == "model":
                return self.world.made_of(function.owner.model)
            return call_builtin(self, function, args, kwargs)
        if item is not None and _root(item.func) in _HARMLESS:
            return UNKNOWN
        if item is not None and isinstance(item.func, ast.Attribute):
            spoil(self.value(item.func.value))
        for value in (*args, *kwargs.values()):
            spoil(value)
        return UNKNOWN

    def new(self, kind: Class, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """An instance: the defaults of a dataclass and those below it, the arguments, then `__post_init__`."""
        if self.world.is_enum(kind):
            return UNKNOWN
        whole = self.world.mro(kind) is not None
        node = Node(kind, is_open=not whole)
        start = self.world.method(kind, "__init__")
        if start is not None:
            for name, line, module in self.world.fields(kind):
                if not _has_factory(line.value):
                    node.fields[name] = self._default(line.value, module)
            self.follow(start, [node, *args], kwargs)
        elif not whole:
            node.fields |= kwargs
            if args:
                node.spoil()
        else:
            self.fill(node, kind, args, kwargs)
        return node

    def fill(self, node: Node, kind: Class, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """What the `__init__` of a dataclass does: the defaults of its fields, the arguments, `__post_init__`."""
        names: list[str] = []
        for name, line, module in self.world.fields(kind):
            if name not in names:
                names.append(name)
            node.fields[name] = UNKNOWN if self.world.doubts else self._default(line.value, module)
        node.fields |= {**dict(zip(names, args)), **kwargs}
        after = self.world.method(node.kind or kind, "__post_init__")
        if after is not None:
            self.follow(after, [node], {})

    def _default(self, item: ast.expr | None, module: str) -> Any:
        if item is None:
            return UNKNOWN
        there = self.elsewhere(module)
        if isinstance(item, ast.Call) and _root(item.func) in ("field", "dataclasses"):
            words = {word.arg: word.value for word in item.keywords}
            if "default" in words:
                return there.value(words["default"])
            if "default_factory" not in words:
                return UNKNOWN
            factory = there.value(words["default_factory"])
            return there.apply(factory, [], {}) if not isinstance(factory, Unknown) else UNKNOWN
        return there.value(item)


def _has_factory(item: ast.expr | None) -> bool:
    return isinstance(item, ast.Call) and any(word.arg == "default_factory" for word in item.keywords)


def _root(item: ast.expr) -> str:
    while isinstance(item, ast.Attribute | ast.Call):
        item = item.value if isinstance(item, ast.Attribute) else item.func
    return item.id if isinstance(item, ast.Name) else ""
