"""A complete launch with one setting hidden, or given another value: what lab/hide.py works on."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import yaml
from legal_values import ABSENT

from megatron_hcp.ground.place import Location
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.dialects.table import FACTS, index_of
from megatron_hcp.launch.edit import read_again
from megatron_hcp.launch.fact import Reading, Setting
from megatron_hcp.launch.forms.yaml.settings import load_yaml

CLUSTER = frozenset("nodes gpus_per_node ntasks_per_node nvlink_domain placement start world_size".split())
"""Facts about the cluster: an unknown one makes no launch undecided."""
PATHS = frozenset("checkpoint_save checkpoint_load data_path data_cache_path model_name".split())
_TOGETHER = {"seq_length": ("dataset_seq_length",)}
"""Facts that Bridge wants equal: they are hidden, and given values, together."""


class Hidden(NamedTuple):
    """A launch with one setting out of sight. `way` is how:

    `unset` a variable that nothing sets, `command` a command's output, `sourced` a variable of a file that is not
    there, `exported` and `evaluated` a variable with a default, which unknown words of an `export` or `eval` may set,
    `mapping` a key below a mapping that one variable holds, `flags` a variable that may hold the setting and more,
    `oc.env` an environment variable in YAML, `recipe` a key that an unknown recipe decides, in a YAML; `overrides` the
    same in an override list (`words`).
    """

    way: str
    text: str
    name: str = ""
    words: tuple[str, ...] = ()
    by_recipe: bool = False
    may_be_absent: bool = False


class Complete:
    """A launch of which every setting could be read. `name` ends as its file does."""

    def __init__(self, name: str, text: str, reading: Reading, assumed: str = "") -> None:
        self.name, self.text, self.reading, self.assumed = name, text, reading, assumed
        self.dialect = reading.dialect

    @cached_property
    def _keys(self) -> dict[str, list[str]]:
        """Fact -> its keys as the launch writes them, of all the models that the launch has."""
        index = dict(index_of(self.dialect, self.reading.role))
        for other in self.reading.others:
            index |= index_of(self.dialect, other.role)
        keys: dict[str, list[str]] = {}
        written = self._written()
        for setting in self.reading.settings:
            if setting.key in index and setting.key in written:
                found = keys.setdefault(index[setting.key].fact, [])
                if setting.key not in found:
                    found.append(setting.key)
        for first, others in _TOGETHER.items() if self.dialect == "bridge" else ():
            for equal in others:
                if first in keys and equal in keys:
                    keys[first] += keys.pop(equal)
        return keys

    def _written(self) -> set[str]:
        return {setting.key for setting in self.reading.settings}

    def told(self) -> tuple[str, ...]:
        """What the launch says of the facts that its keys hold, so that equal launches are equal."""
        facts = build_launch(self.reading).facts
        told = {f"{name}={facts[name].value}" for name in facts.keys() & FACTS.keys() - PATHS - {"script"}}
        keys = {key for keys in self._keys.values() for key in keys}
        return (self.dialect, self.reading.form, self.assumed, *sorted(told), *sorted(keys))

    def facts(self) -> list[str]:
        """The facts that the launch states by keys, those of the cluster and paths left out."""
        return [fact for fact in self._keys if fact not in CLUSTER | PATHS]

    def key(self, fact: str) -> str:
        return self._keys[fact][0]

    def value(self, fact: str) -> Any:
        stated = build_launch(self.reading).facts.get(fact)
        return stated.value if stated else None

    def hidings(self, fact: str) -> Iterator[Hidden]:
        """The launch with the fact's settings hidden, in each way that its form has."""
        raise NotImplementedError

    def with_value(self, fact: str, value: Any) -> Reading:
        """The launch as it would be read with another value for the fact, `ABSENT` for none."""
        settings = []
        for setting in self.reading.settings:
            if setting.key not in self._keys[fact]:
                settings.append(setting)
            elif value is not ABSENT:
                settings += self._rewritten(setting, value)
        if self.dialect == "mlm":
            return self.reading._replace(settings=tuple(settings))
        return read_again(self.reading, settings)

    def _rewritten(self, setting: Setting, value: Any) -> list[Setting]:
        """The setting with another value; none where only its absence says that."""
        if self.dialect != "mlm":
            return [setting._replace(value=value)]
        if isinstance(value, bool):
            return [setting._replace(value=[])] if value != index_of("mlm")[setting.key].negated else []
        words = value if isinstance(value, list) else [value]
        if FACTS[index_of("mlm")[setting.key].fact].type == "window":
            words = [",".join(map(str, words))]  # Megatron-LM's parser takes a window as one word
        return [] if value is None else [setting._replace(value=[str(word) for word in words])]


class Script(Complete):
    """A shell script: Megatron-LM's flags, verl's overrides."""

    def _written(self) -> set[str]:
        return {setting.key for setting in self.reading.settings if self._span(setting.location, setting.key)}

    def _span(self, place: Location | None, key: str) -> tuple[int, int] | None:
        """Where the setting's words stand in the text; None if they don't appear literally."""
        if place is None:
            return None
        start, end = self._offset(place.line, place.column), self._offset(place.end_line, place.end_column)
        words = self.text[start:end]
        flag = re.match(r"--([\w-]+)", words)
        if flag and self.dialect == "mlm":
            return (start, end) if flag[1].replace("-", "_") == key else None
        return (start, end) if re.match(rf"[\"']?\+{{0,2}}{re.escape(key)}=", words) else None

    def _offset(self, line: int, column: int) -> int:
        return self._line_starts[line - 1] + column - 1

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        for line in self.text.split("\n"):
            starts.append(starts[-1] + len(line) + 1)
        return starts

    def _replaced(self, keys: Iterable[str], write: Any) -> str | None:
        """The text with each of the keys' words replaced by what `write(their text, key)` gives."""
        spans = {}
        for setting in self.reading.settings:
            span = self._span(setting.location, setting.key) if setting.key in keys else None
            if span is not None:
                spans[span] = setting.key  # of a key that is written twice in one place, once
        text = self.text
        for (start, end), key in sorted(spans.items(), reverse=True):
            text = text[:start] + write(text[start:end], key) + text[end:]
        return text if spans else None

    def hidings(self, fact: str) -> Iterator[Hidden]:
        keys = self._keys[fact]
        for way, value in (("unset", "$HIDDEN_VALUE"), ("command", "$(cat value.txt)"), ("sourced", "$HIDDEN_VALUE")):
            text = self._replaced(keys, lambda words, key, value=value: _with_word(words, key, value))
            if text is not None:
                yield Hidden(way, _sourcing(text) if way == "sourced" else text)
        for way, line in _TAKES_IN.items():
            text = self._replaced(
                keys, lambda words, key: _with_word(words, key, f"${{HIDDEN_VALUE:-{_value(words)}}}")
            )
            if text is not None and "${HIDDEN_VALUE:-}" not in text:
                yield Hidden(way, _before_all(text, line))
        if self.dialect == "verl" and all(_MAPPING in key for key in keys):
            text = self._replaced(keys, lambda words, key: f"+{key.partition(_MAPPING)[0]}{_MAPPING}=$HIDDEN_VALUE")
            if text is not None:
                yield Hidden("mapping", text, may_be_absent=True)
        for way in ("flags", "sourced"):
            text = self._replaced(keys, lambda words, key: "$HIDDEN_FLAGS")
            if text is not None:
                name = "flags" if way == "flags" else "sourced flags"
                yield Hidden(name, _sourcing(text) if way == "sourced" else text, may_be_absent=True)


_TAKES_IN = {"exported": "export $(cat .env | xargs)", "evaluated": 'eval "$(./setenv.sh)"'}
_MAPPING = "override_transformer_config"


def _value(words: str) -> str:
    """What stands behind a flag or an override's key; "" where nothing does, or more than one word."""
    value = words.split("=", 1)[1] if "=" in words else words.partition(" ")[2]
    return value if re.fullmatch(r"[\w.+-]+", value) else ""


def _with_word(words: str, key: str, value: str) -> str:
    """`--flag VALUE` or `key=VALUE`; a flag that stands alone is hidden as a whole."""
    if not words.startswith("--"):
        sign = re.match(r"[\"']?(\+{0,2})", words)
        return f"{sign[1] if sign else ''}{key}={value}"
    flag = re.match(r"--[\w-]+", words)
    assert flag is not None
    return f"{flag[0]} {value}" if words != flag[0] else value


def _hydra(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(map(_hydra, value)) + "]"
    return str(value)


def as_yaml(data: dict[str, Any]) -> str:
    return yaml.dump(data, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False, width=10_000)


def _sourcing(text: str) -> str:
    """The script with a line that reads a file that is not there, before its first command."""
    return _before_all(text, 'source "models/hidden.sh"')


def _before_all(text: str, line: str) -> str:
    lines = text.split("\n")
    first = next(number for number, line in enumerate(lines) if line.strip() and not line.startswith("#"))
    return "\n".join([*lines[:first], line, *lines[first:]])


class Yaml(Complete):
    """A YAML: Megatron-LM's MODEL_ARGS, verl's trainer, Bridge's container."""

    @cached_property
    def _data(self) -> dict[str, Any]:
        return load_yaml(self.text, self.name, last_wins=True).data

    def _path(self, data: dict[str, Any], key: str) -> tuple[dict[str, Any], str] | None:
        """The mapping that holds a key, and the key's name in it."""
        if self.dialect == "mlm":
            flags = data.get("MODEL_ARGS") or {}
            name = next((flag for flag in flags if flag.lstrip("-").replace("-", "_") == key), None)
            return (flags, name) if name is not None else None
        *above, last = key.split(".")
        for part in above:
            data = data.get(part, {}) if isinstance(data, dict) else {}
        return (data, last) if isinstance(data, dict) and last in data else None

    def _written(self) -> set[str]:
        keys = {setting.key for setting in self.reading.settings}
        return {key for key in keys if self._path(self._data, key) is not None}

    def _edited(self, fact: str, value: Any, dropped: tuple[str, ...] = ()) -> str:
        data = copy.deepcopy(self._data)
        for key in (*self._keys[fact], *dropped):
            found = self._path(data, key)
            if found is not None and (value is ABSENT or key in dropped):
                del found[0][found[1]]
            elif found is not None:
                found[0][found[1]] = value
        return as_yaml(data)

    def hidings(self, fact: str) -> Iterator[Hidden]:
        if self.dialect == "mlm":
            yield Hidden("unset", self._edited(fact, "${HIDDEN_VALUE}"))
            return
        yield Hidden("oc.env", self._edited(fact, "${oc.env:HIDDEN_VALUE}"), may_be_absent=True)
        if self.dialect == "bridge":
            partial = self._edited(fact, ABSENT, ("_target_", "model._target_"))
            yield Hidden("recipe", partial, by_recipe=True, may_be_absent=True)
            yield Hidden("overrides", "", words=self._words(fact), by_recipe=True, may_be_absent=True)

    def _words(self, fact: str) -> tuple[str, ...]:
        """The other settings that the rules know, as an override list that names no recipe."""
        index = index_of(self.dialect, self.reading.role)
        hidden = {*self._keys[fact], "model._target_"}
        settings = (s for s in self.reading.settings if s.key in index and s.key not in hidden)
        return tuple(f"{setting.key}={_hydra(setting.value)}" for setting in settings)
