"""OmegaConf interpolation in settings: `${a.b}`, `${.sibling}`, `${oc.select:a.b,default}`. Nothing else is evaluated.

Importing OmegaConf itself takes longer than a whole check may take, and its resolvers read the environment.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from megatron_hcp.launch.fact import Setting
from megatron_hcp.launch.facts.spec import UNKNOWN
from megatron_hcp.launch.forms.words.hydra import hydra_value

_LONGEST = 10_000
_MOST_SETTINGS = 20_000
_MAX_DEPTH = 30
_LARGEST = 10**15


class _Unresolved(Exception):
    """The reason why a value stays unknown."""


def resolve(
    settings: Iterable[Setting],
    default: Callable[[str], Any] = lambda key: UNKNOWN,
    functions: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType({}),
) -> tuple[list[Setting], dict[str, str]]:
    """The settings with every interpolation evaluated, and the keys that couldn't be, each with the reason.

    `default` is called for keys without a setting: upstream's default, or `UNKNOWN`. A setting whose value refers to a
    mapping becomes one setting per leaf. The order is kept. `functions` are resolvers of two numbers, by name:
    `${mul:2,${a.b}}`.
    """
    given = list(settings)
    if not any(_holds_reference(setting.value) or setting.value == "???" for setting in given):
        return given, {}
    resolver = _Resolver(given, default, functions)
    resolved: list[Setting] = []
    unknown: dict[str, str] = {}
    for setting in given:
        if setting.value == "???":
            unknown[setting.key] = "??? marks a value that must still be given"
            continue
        try:
            resolved += resolver.expanded(setting)
        except _Unresolved as reason:
            unknown[setting.key] = str(reason)
    return resolved, unknown


def _holds_reference(value: Any) -> bool:
    if isinstance(value, str):
        return "${" in value
    return isinstance(value, list) and any(map(_holds_reference, value))


class _Tree:
    """A reference to a mapping: the settings below a key."""

    def __init__(self, key: str, leaves: list[Setting]) -> None:
        self.key, self.leaves = key, leaves


class _Resolver:
    def __init__(
        self,
        settings: list[Setting],
        default: Callable[[str], Any],
        functions: Mapping[str, Callable[[Any, Any], Any]],
    ) -> None:
        self.functions = functions
        self.settings = {setting.key: setting for setting in settings}
        self.default = default
        self.done: dict[str, Any] = {}
        self.open: set[str] = set()
        self.copied = 0
        self.names: list[str] | None = None

    def expanded(self, setting: Setting) -> list[Setting]:
        """The setting, evaluated; several where it refers to a mapping."""
        if not _holds_reference(setting.value):
            return [setting]
        value = self._of(setting)
        if not isinstance(value, _Tree):
            return [setting._replace(value=value)]
        out: list[Setting] = []
        for leaf in value.leaves:
            if leaf.key == setting.key or leaf.key.startswith(setting.key + "."):
                raise _Unresolved("it refers to itself")
            for item in self.expanded(leaf):
                self._copy(1)
                out.append(item._replace(key=setting.key + item.key[len(value.key) :]))
        return out

    def _of(self, setting: Setting) -> Any:
        if setting.key in self.done:
            return self.done[setting.key]
        if setting.key in self.open or len(self.open) > _MAX_DEPTH:
            raise _Unresolved("it refers to itself")
        self.open.add(setting.key)
        try:
            value = self._value(setting.value, setting.key)
        finally:
            self.open.discard(setting.key)
        self.done[setting.key] = value
        return value

    def _value(self, value: Any, at: str) -> Any:
        if isinstance(value, list):
            return [self._value(item, at) for item in value]
        if not isinstance(value, str) or "${" not in value:
            return value
        if value.startswith("${") and _end(value, 2) == len(value):
            return self._reference(value[2:-1], at)
        return self._text(value, at)

    def _text(self, text: str, at: str) -> str:
        """The text with each `${…}` replaced by its value as text."""
        parts: list[str] = []
        position = 0
        while (start := text.find("${", position)) >= 0:
            end = _end(text, start + 2)
            value = self._reference(text[start + 2 : end - 1], at)
            if isinstance(value, _Tree | list | dict):
                raise _Unresolved("a mapping or list is used inside a text")
            parts += [text[position:start], "null" if value is None else str(value)]
            position = end
            if sum(map(len, parts)) > _LONGEST:
                raise _Unresolved("its value gets too long")
        return "".join(parts) + text[position:]

    def _reference(self, inner: str, at: str) -> Any:
        inner = inner.strip()
        name, colon, arguments = inner.partition(":")
        if not colon or "{" in name:
            return self._lookup(self._text(inner, at), at, None)
        if name == "oc.env":
            variable, comma, fallback = arguments.partition(",")
            if comma:  # like a shell's ${X:-fallback}: read as if X is unset
                return hydra_value(self._text(fallback.strip(), at))
            raise _Unresolved(f"it is the environment variable {variable.strip()[:40]}")
        if name in self.functions:
            return self._computed(name, arguments, at)
        if name != "oc.select":
            raise _Unresolved(f"the resolver {name[:40]} is not evaluated")
        key, comma, fallback = arguments.partition(",")
        return self._lookup(self._text(key.strip(), at), at, fallback if comma else "null")

    def _computed(self, name: str, arguments: str, at: str) -> int | float:
        """A function applied to its two numbers."""
        numbers = [self._value(part, at) if "${" in part else hydra_value(part) for part in _arguments(arguments)]
        if len(numbers) != 2 or not all(type(number) in (int, float) and abs(number) < _LARGEST for number in numbers):
            raise _Unresolved(f"{name} isn't given two numbers")
        try:
            result: int | float = self.functions[name](*numbers)
        except ZeroDivisionError:
            raise _Unresolved("it divides by zero") from None
        return result

    def _below(self, path: str) -> list[Setting]:
        """The settings below a key."""
        if self.names is None:
            self.names = sorted(self.settings)
        # "/" comes right after "." in ASCII: what starts with "path." sorts between the two.
        first, end = (bisect_left(self.names, path + stop) for stop in "./")
        self._copy(end - first)
        return [self.settings[name] for name in self.names[first:end]]

    def _copy(self, count: int) -> None:
        self.copied += count
        if self.copied > _MOST_SETTINGS:
            raise _Unresolved("its references expand to too many values")

    def _lookup(self, key: str, at: str, fallback: str | None) -> Any:
        path = _absolute(key, at)
        setting = self.settings.get(path)
        if setting is not None and setting.value != "???":
            return self._of(setting)
        below = self._below(path)
        if below:
            return _Tree(path, below)
        value = self.default(path)
        if value is not UNKNOWN:
            return value
        if fallback is None:
            raise _Unresolved(f"it refers to {path[:80]}, which the launch does not set")
        value = self._value(fallback, at) if "${" in fallback else hydra_value(fallback)
        return _Tree(path, []) if value == {} else value


def _absolute(key: str, at: str) -> str:
    """One leading dot is the mapping that holds the value, each further dot goes one level up."""
    dots = len(key) - len(key.lstrip("."))
    if not dots:
        return key
    holders = at.split(".")[:-dots] if dots < len(at.split(".")) else []
    return ".".join([*holders, key[dots:]])


def _arguments(text: str) -> list[str]:
    """A resolver's arguments: split at commas outside references."""
    parts, depth = [""], 0
    for character in text:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _end(text: str, start: int) -> int:
    """The position after the brace that closes the reference whose content starts at `start`."""
    depth = 1
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position + 1
    raise _Unresolved("a reference is not closed")
