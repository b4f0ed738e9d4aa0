"""A launch's settings as the configuration that upstream composes of them and its own defaults."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from megatron_hcp.launch.dialects.table import FACTS, keys_of
from megatron_hcp.launch.fact import Launch
from megatron_hcp.validators.given.options import default_value
from megatron_hcp.validators.given.settings import STATED
from megatron_hcp.validators.values import NOT_READ, NotKnown, Thing
from megatron_hcp.validators.words import PLAIN

_DEEPEST = 8
"""Of references to references."""
_WHOLE = frozenset(("policy", "cluster", "data"))
"""The sections that every NeMo-RL configuration has; one without them is an excerpt, and may have more settings."""


class Settings:
    """The defaults of a revision's settings by their keys, as its table has them."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = dict(line.split("\t", 1) for line in lines)
        self.sections = {key[:end] for key in self.lines for end, sign in enumerate(key) if sign == "."}
        """The keys that have settings below them: a word such as `critic=megatron_critic` chooses a section's file."""

    def value(self, key: str, written: dict[str, Any], depth: int = 0) -> Any:
        """What a setting comes to, where the launch writes these; a section if it is one."""
        if key in written:
            return written[key]
        line = self.lines.get(key)
        if line is None:
            return self.section(key, written, depth + 1)
        if line == "{}":
            inside = {name: value for name, value in written.items() if name.startswith(f"{key}.")}
            return Settings(()).section(key, inside, depth + 1) or Thing({}, key=key)
        if line[0] != "@":
            return PLAIN[line] if line in PLAIN else default_value(line)
        other, _, default = line[1:].partition("\t")
        if depth >= _DEEPEST:
            return NOT_READ
        found = self.value(other, written, depth + 1)
        return default_value(default) if found is None and other not in self.lines else found

    def section(self, prefix: str, written: dict[str, Any], depth: int = 0) -> Thing | None:
        """The settings below a key as nested objects; None if there are none. Written ones may add to upstream's."""
        start = f"{prefix}." if prefix else ""
        keys = dict.fromkeys(key for key in (*self.lines, *written) if key.startswith(start))
        if not keys or depth > _DEEPEST:
            return None
        found = Thing({}, key=prefix)
        for key in keys:
            owner, names = found, key.removeprefix(start).split(".")
            for place, name in enumerate(names[:-1]):
                inner = owner.fields.get(name)
                if not isinstance(inner, Thing):
                    inner = owner.fields[name] = Thing({}, key=start + ".".join(names[: place + 1]))
                owner = inner
            value = self.value(key, written, depth)
            if names[-1] not in owner.fields or not (isinstance(value, Thing) and not value.fields):
                owner.fields[names[-1]] = value
        return found


def configuration_of(launch: Launch, settings: Settings) -> Thing:
    """The whole configuration. What the launch hides is unknown; what was stated beside it counts as written."""
    reading = launch.reading
    written: dict[str, Any] = {}
    if reading.unseen is not None or not reading.complete:
        written |= {key: NotKnown((key,)) for key in settings.lines if not key.endswith("_target_")}
    for setting in reading.settings:
        if "@" not in setting.key and setting.key[:1].isalpha() and setting.key not in settings.sections:
            written[setting.key] = _plain(setting.value, setting.key)
    for key in reading.unknown:
        if "." in key:
            written[key] = NotKnown((key,))
    for name, fact in launch.facts.items():
        if fact.origin not in STATED and name in FACTS:
            for key in keys_of(FACTS[name], launch.dialect, reading.role)[:1]:
                if key in settings.lines:
                    written[key] = fact.value
    for other in reading.others:
        if (strategy := other.facts.get("strategy")) is not None and strategy.value != "megatron":
            written[other.role] = NotKnown((other.role,))
    found = settings.section("", written) or Thing({}, key="")
    is_whole = reading.unseen is None and reading.complete and found.fields.keys() >= _WHOLE
    if not settings.lines and not is_whole:
        _open(found)
    return found


def _open(section: Thing) -> None:
    """Makes a section, and those in it, one that may have more settings."""
    section.is_closed = False
    for value in section.fields.values():
        if isinstance(value, Thing):
            _open(value)


def _plain(value: Any, key: str) -> Any:
    """A value as upstream's code has it; unknown for a reference that was left."""
    if isinstance(value, dict):
        return Thing({name: _plain(item, f"{key}.{name}") for name, item in value.items()}, key=key)
    return NotKnown((key,)) if isinstance(value, str) and ("${" in value or value == "???") else value
