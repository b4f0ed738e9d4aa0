"""Megatron-Bridge's recipes as launches, read from their sources without importing them.

`--dryrun` would write each recipe as a full YAML, but needs torch, GPUs and the models' Hugging Face configs. This
follows the recipe functions (see `follow/`) and keeps what they leave in the keys of our table of facts. A key whose
value comes from a model's own config, or hangs on what cannot be told here, is unknown.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from bridge_models import ModelDefaults
from bridge_sources import Sources
from follow.call import Call
from follow.expressions import is_known
from follow.modules import Modules
from follow.values import UNKNOWN, Argument, Function, Member, Node, NotFollowed, Raised, Unknown
from follow.world import World

from megatron_hcp.launch.dialects.table import FACTS, index_of
from megatron_hcp.launch.fact import Reading, Setting

_LIBRARY, _BENCHMARKS = "megatron.bridge.recipes", "megatron.bridge.perf_recipes"
_SPECS = ("dataset.packed_sequence_specs", "dataset.offline_packing_specs")
_PRECISION = ("fp8", "fp8_recipe", "fp8_dot_product_attention", "fp8_multi_head_attention")
_MISSING = object()


class Parameter(NamedTuple):
    """What a recipe's argument decides: the keys that take its value, and those that change in another way."""

    name: str
    sets: tuple[str, ...]
    changes: tuple[str, ...]


class Values(NamedTuple):
    """The keys of a configuration that are known, and those that are not."""

    known: dict[str, Any]
    unknown: frozenset[str]
    model: str = ""
    start: Mapping[str, Any] = MappingProxyType({})
    """What start-up validators read beside: unknown and composed values, too."""


class Recipe(NamedTuple):
    """A recipe's launch; `target` is file:function, `model` the Hugging Face model that it trains ("" = not told)."""

    name: str
    target: str
    values: Values
    parameters: tuple[Parameter, ...] = ()

    @property
    def model(self) -> str:
        return self.values.model

    @property
    def reading(self) -> Reading:
        settings = tuple(Setting(key, value) for key, value in self.values.known.items())
        unknown = dict.fromkeys(self.values.unknown, "the recipe's value cannot be read")
        from megatron_hcp.launch.dialects.bridge.reading import bridge_reading

        reading = bridge_reading("bridge", self.target, "overrides", settings, complete=False)
        return reading._replace(unknown=unknown)


class Recipes:
    """The recipes of a checkout; `megatron_lm` is the Megatron-LM that it pins, for the classes below Bridge's own."""

    def __init__(self, checkout: Path, megatron_lm: Path | None = None, start: Iterable[str] = ()) -> None:
        """`start` are further keys that are looked up, for `Values.start`."""
        self._start = tuple(start)
        sys.setrecursionlimit(10_000)
        self.checkout = checkout
        source = checkout / "src" if (checkout / "src").is_dir() else checkout
        core = megatron_lm or checkout / "3rdparty" / "Megatron-LM"
        self.modules = Modules([source, *([core] if core.is_dir() else [])])
        self.left_out: dict[str, str] = {}
        self._models = ModelDefaults(World(self.modules))
        self._world = World(self.modules, self._models.of)

    def names(self) -> dict[str, Function]:
        """Every name by which upstream's launchers find a recipe (recipe_runner.py, `load_recipe`), and its function.

        Of a name that both packages export it is the benchmark's.
        """
        families = [f"{_BENCHMARKS}.{name}" for name in self.modules.packages(_BENCHMARKS)]
        h100 = [f"{_LIBRARY}.{name}.h100" for name in self.modules.packages(_LIBRARY)]
        found: dict[str, Function] = {}
        for package in (*families, _LIBRARY, *h100):
            for name in self.modules.attributes(package):
                if name in found or not name.endswith("_config") or name.startswith(("_", "default_")):
                    continue
                home = self.modules.find(package, name)
                if home is not None and home[0].startswith((_LIBRARY, _BENCHMARKS)) and home[1]:
                    code = home[1][-1]
                    found |= {name: Function(home[0], code)} if isinstance(code, ast.FunctionDef) else {}
        return found

    def __iter__(self) -> Iterator[Recipe]:
        made: dict[tuple[str, str], Recipe | None] = {}
        for name, function in sorted(self.names().items()):
            assert isinstance(function.code, ast.FunctionDef)
            key = (function.module, function.code.name)
            if key not in made:
                made[key] = self._recipe(function)
            recipe = made[key]
            if recipe is not None:
                yield recipe._replace(name=name)

    def _recipe(self, function: Function) -> Recipe | None:
        assert isinstance(function.code, ast.FunctionDef)
        name = function.code.name
        values = self._values(function, {})
        if values is None:
            return None
        file = self.modules.file(function.module)
        assert file is not None
        target = f"{file.relative_to(self.checkout)}:{name}"
        arguments = function.code.args
        parameters = tuple(
            self._parameter(function, item.arg, values) for item in (*arguments.args, *arguments.kwonlyargs)
        )
        return Recipe(name, target, values, parameters)

    def _values(self, function: Function, kwargs: dict[str, Any]) -> Values | None:
        assert isinstance(function.code, ast.FunctionDef)
        try:
            config = Call(self._world, function.module).run(function, [], kwargs)
        except (Raised, NotFollowed, RecursionError) as error:
            self.left_out[function.code.name] = f"{type(error).__name__}: {error}"[:160]
            return None
        if not isinstance(config, Node) or config.name not in ("ConfigContainer", ""):
            return None
        values = values_of(config, self._models)
        names = self._models.names_of(values.model) if values.model else None
        start = {key: _walk(config, key) for key in self._start if key not in values.known}
        return values._replace(start={key: found for key, found in start.items() if _is_there(key, found, names)})

    def _parameter(self, function: Function, name: str, base: Values) -> Parameter:
        given = self._values(function, {name: Argument(name)})
        if given is None:
            return Parameter(name, (), tuple(sorted({*base.known, *base.unknown})))
        sets = {key for key, value in given.known.items() if isinstance(value, Argument)}
        keys = {*base.known, *base.unknown, *given.known, *given.unknown} - sets
        changes = {key for key in keys if _at(given, key) != _at(base, key)}
        return Parameter(name, tuple(sorted(sets)), tuple(sorted(changes)))


def _is_there(key: str, value: Any, names: Collection[str] | None) -> bool:
    """Whether a configuration has a value, known or not: no model of this release has a field beside `names`."""
    if isinstance(value, Unknown) and names is not None and key.startswith("model.") and key[6:] not in names:
        return False
    return value is not _MISSING


def _at(values: Values, key: str) -> Any:
    return UNKNOWN if key in values.unknown else values.known.get(key, _MISSING)


def values_of(config: Node, models: ModelDefaults) -> Values:
    """What a configuration says of the keys in our table."""
    known: dict[str, Any] = {}
    unknown: set[str] = set()
    model = config.fields.get("model")
    names = models.names_of(model.model) if isinstance(model, Node) and model.model else None
    for key in (*index_of("bridge"), *_SPECS, "mixed_precision"):
        value = _walk(config, key)
        if isinstance(value, Unknown) and names is not None and key.startswith("model.") and key[6:] not in names:
            continue  # no model of this release has such a field
        if isinstance(value, Argument):
            known[key] = value
        elif isinstance(value, Unknown) or (value == 0 and _is_size(key)):  # a size of 0 is for the user to set
            unknown.add(key)
        elif value is not _MISSING and _is_plain(value):
            known[key] = _plain(value)
        elif isinstance(value, list | tuple) and not is_known(value):
            unknown.add(key)
    if "mixed_precision" in unknown:
        unknown |= {f"mixed_precision.{field}" for field in _PRECISION}
    environment = config.fields.get("env_vars")
    if isinstance(environment, dict):
        known |= {f"env_vars.{name}": value for name, value in environment.items() if not isinstance(value, Unknown)}
    for section in ("model", "dataset"):
        node = config.fields.get(section)
        if isinstance(node, Node) and node.name:
            known[f"{section}._target_"] = node.name
            unknown.discard(f"{section}._target_")
    if isinstance(model, Node) and model.model and (sees := models.has_vision(model.model)) is not None:
        known["vision"] = sees
    return Values(known, frozenset(unknown - known.keys()), model.model if isinstance(model, Node) else "")


def _walk(config: Node, key: str) -> Any:
    """The value under a key; `_MISSING` where its class has no such field, or nothing is there."""
    value: Any = config
    for part in key.split("."):
        if isinstance(value, Unknown):
            return UNKNOWN
        if isinstance(value, dict):
            value = value.get(part, _MISSING)
        elif not isinstance(value, Node):
            return _MISSING
        elif part in value.fields:
            value = value.fields[part]
        else:
            # Of an object that is not known through and through, a field that nobody set is unknown.
            return UNKNOWN if value.is_open else _MISSING
    return value


def _is_size(key: str) -> bool:
    entry = index_of("bridge").get(key)
    return entry is not None and FACTS[entry.fact].type == "size"


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Member) else value


def recipes(checkout: Path, sources: Sources | None = None, megatron_lm: Path | None = None) -> Iterator[Recipe]:
    """Every recipe function of a Megatron-Bridge checkout that gives a configuration, once."""
    seen = set()
    for recipe in Recipes(checkout, megatron_lm):
        if recipe.target not in seen:
            seen.add(recipe.target)
            yield recipe


def recipe_launches(checkout: Path) -> Iterator[tuple[str, Reading]]:
    """(file:function, its launch) for every recipe of a Megatron-Bridge checkout."""
    for recipe in recipes(checkout):
        yield recipe.target, recipe.reading
