"""What a Megatron-Bridge recipe sets, from `recipes.txt`, which lab/recipes/table.py writes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Any

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.fact import BY_RELEASE, Elsewhere, Setting

_FILE = os.path.join(os.path.dirname(__file__), "recipes.txt")
_NEAREST = 3
ROWS_A_BLOCK = 256
"""A row lists the settings in which it differs from the row before; the first of a block lists all of its settings."""


class RecipeParameter(NamedTuple):
    """A recipe's argument: the keys set to its value, and those that it changes in another way."""

    name: str
    sets: tuple[str, ...]
    changes: tuple[str, ...]


class Recipe(NamedTuple):
    """A recipe in one release, or what all releases that have it agree on; `unknown` says why, for each unknown key."""

    name: str
    origin: str
    settings: tuple[Setting, ...]
    unknown: Mapping[str, str]
    parameters: tuple[RecipeParameter, ...]
    model: str
    """The Hugging Face model that it trains; "" = not known."""
    release: str = ""
    """Megatron-Bridge's release; "" = any that has the recipe."""
    varies: frozenset[str] | None = None
    """The keys that some recipe sets to something else than its class's default; None if that is not known."""


class _Table(NamedTuple):
    """The file's sections; see lab/lib/bridge_releases.py."""

    releases: list[str]
    settings: list[str]
    unknown: list[str]
    parameters: list[str]
    models: list[str]
    rows: list[str]
    keys: list[str]
    given: list[str]
    recipes: str
    varies: list[str]
    """Releases, the keys in which their recipes differ from the defaults of their classes, a digest of all keys."""


def releases() -> list[str]:
    """The releases whose recipes are known, oldest first; a development version has its commit after a +."""
    return _read().releases


def recorded_keys() -> tuple[list[str], str]:
    """The releases whose recipes were asked for what validators read, and a digest of those keys."""
    releases, _, digest = _read().varies
    return releases.split(), digest


def look_up(name: str, version: str | None) -> Recipe:
    """The recipe in a release; if the release is unknown, what all releases agree on.

    Raises:
        HcpError: no release has it, or this one doesn't.
    """
    table = _read()
    numbers = _numbers(table, name)
    if numbers is None:
        raise _unknown(table, name)
    having = _having(table, numbers)
    place = next((at for at, known in enumerate(table.releases) if _same(known, version)), None)
    if place is None:
        rows = [number for number in dict.fromkeys(numbers) if number != "-"]
        return _agreed([_recipe(table, name, number, "") for number in rows], having)
    if numbers[place] == "-":
        raise HcpError(
            f"recipe {name} is in Megatron-Bridge {_range(having)}, not in {version}",
            wanted=f"one of {version}",
            do=_near(table, name, place) or "correct the name or --assume bridge=VERSION",
        )
    release = table.releases[place]
    varies = frozenset(table.varies[1].split()) if release in table.varies[0].split() else None
    return _recipe(table, name, numbers[place], f"Bridge {release}")._replace(release=release, varies=varies)


def of_model(model: str) -> Recipe | None:
    """What all recipes of a model agree on, in every release; None if there is none. Recipes begin with its name."""
    table = _read()
    if not model.isidentifier():
        return None
    tasks = "|".join(_TASKS)
    found = re.findall(rf"^{model}_(?:{tasks})_.*$", table.recipes, re.M)
    rows = {number: line.split()[0] for line in found for number in line.split()[1:] if number != "-"}
    if not rows:
        return None
    return _agreed([_recipe(table, name, number, "") for number, name in rows.items()], table.releases)


_TASKS = ("pretrain", "sft", "peft", "finetune", "lora")
"""What follows the model in a recipe's name."""


def names_of(release: str) -> list[str]:
    """The recipes that a release has."""
    table = _read()
    place = table.releases.index(release)
    lines = [line.split() for line in table.recipes.split("\n") if line]
    return [words[0] for words in lines if words[place + 1] != "-"]


def is_recipe(name: str) -> bool:
    """Whether some release has a recipe of that name."""
    return _numbers(_read(), name) is not None


def releases_with(name: str) -> list[str]:
    """The releases that have the recipe, oldest first."""
    table = _read()
    return _having(table, _numbers(table, name) or ())


def _having(table: _Table, numbers: Sequence[str]) -> list[str]:
    return [release for release, number in zip(table.releases, numbers) if number != "-"]


def _read() -> _Table:
    with open(_FILE, encoding="utf-8") as file:
        file.readline()
        *lists, recipes, varies = file.read().rstrip("\n").split("\n\n")
    own = dict(zip(_Table._fields, (text.split("\n") for text in lists)))
    return _Table(**own, recipes="\n" + recipes + "\n", varies=varies.split("\n"))


def _numbers(table: _Table, name: str) -> list[str] | None:
    start = table.recipes.find(f"\n{name} ") if name.isidentifier() else -1
    if start < 0:
        return None
    return table.recipes[start + 1 : table.recipes.index("\n", start + 1)].split()[1:]


def _settings_of_row(table: _Table, number: int) -> list[int]:
    first = number - number % ROWS_A_BLOCK
    found: set[int] = set()
    for row in table.rows[first : number + 1]:
        found.symmetric_difference_update(accumulate(_numbers_in(row)))
    return sorted(found)


def _numbers_in(row: str) -> Iterable[int]:
    return map(int, row.split()) if row != "-" else ()


def _recipe(table: _Table, name: str, number: str, release: str) -> Recipe:
    from megatron_hcp.launch.facts.known_models import fields_of

    at = int(number)
    model, keys, given = table.models[at], table.keys[at], table.given[at]
    settings = [_setting(table.settings[place]) for place in _settings_of_row(table, at)]
    model = "" if model == "-" else model
    reason = f"recipe {name} sets it in a way that its source doesn't show"
    of_model = Elsewhere(f"the config.json of {model} sets it: give it with --model")
    known = {f"model.{field}": value for field, value in fields_of(model).items() if value is not None}
    unknown = {}
    for key in table.unknown[int(keys)].split():
        if key in known:
            settings.append(Setting(key, known[key]))
        elif key != "-":
            unknown[key] = of_model if model and key.startswith("model.") else reason
    parameters = []
    for place in _numbers_in(given):
        parameter, sets, changes = table.parameters[place].split("|")
        parameters.append(RecipeParameter(parameter, tuple(sets.split()), tuple(changes.split())))
    return Recipe(name, f"recipe {name} ({release})", tuple(settings), unknown, tuple(parameters), model)


@cache
def _setting(line: str) -> Setting:
    import json

    key, _, value = line.partition(" ")
    return Setting(key, json.loads(value))


def _agreed(found: Sequence[Recipe], having: Sequence[str]) -> Recipe:
    """What the recipe has in common in all releases."""
    first = found[0]
    where = f"Bridge {_range(having)}"
    values = [{setting.key: setting.value for setting in recipe.settings} for recipe in found]
    keys = {key for each in values for key in each} | {key for recipe in found for key in recipe.unknown}
    agreed = [Setting(key, value) for key, value in _all_told(found, values).items()]
    common = {setting.key for setting in agreed}
    differs = f"differs between Bridge releases {_range(having).replace(' to ', ' and ')}{BY_RELEASE}"
    unknown = {}
    for key in sorted(keys - common):
        always = all(key in recipe.unknown for recipe in found)
        unknown[key] = first.unknown[key] if always else differs
    models = {recipe.model for recipe in found}
    parameters = {parameter.name: parameter for recipe in found for parameter in recipe.parameters}
    merged = tuple(_widest(found, name) for name in parameters)
    origin = f"recipe {first.name} ({where})"
    return Recipe(first.name, origin, tuple(agreed), unknown, merged, models.pop() if len(models) == 1 else "")


def _all_told(found: Sequence[Recipe], values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The settings, by key, whose fact is the same in all releases: under any of its keys, or by its default."""
    from megatron_hcp.launch.dialects.table import FACTS, default_of, index_of, keys_of

    index = index_of("bridge")
    agreed = {}
    for key, value in {key: value for each in reversed(values) for key, value in each.items()}.items():
        if all(key in each and each[key] == value for each in values):
            agreed[key] = value
        elif key in index:
            fact = FACTS[index[key].fact]
            keys, default = keys_of(fact, "bridge"), default_of(fact, "bridge")
            if all(
                recipe.unknown.keys().isdisjoint(keys)
                and next((each[name] for name in keys if name in each), default) == value
                for recipe, each in zip(found, values)
            ):
                agreed[key] = value
    return agreed


def _widest(found: Sequence[Recipe], name: str) -> RecipeParameter:
    """An argument over several releases: it sets what it sets in all of them, and changes what it changes in any."""
    there = [parameter for recipe in found for parameter in recipe.parameters if parameter.name == name]
    sets = set(there[0].sets).intersection(*(parameter.sets for parameter in there))
    touched = {key for parameter in there for key in (*parameter.sets, *parameter.changes)}
    return RecipeParameter(name, tuple(sorted(sets)), tuple(sorted(touched - sets)))


def _same(release: str, version: str | None) -> bool:
    return version is not None and version.removeprefix("v").partition("+")[0] == release.partition("+")[0]


def _range(having: Sequence[str]) -> str:
    return having[0] if len(having) == 1 else f"{having[0]} to {having[-1]}"


def _unknown(table: _Table, name: str) -> HcpError:
    near = _near(table, name, None)
    return HcpError(
        f"Megatron-Bridge {_range(table.releases)} has no recipe {name[:80]!r}",
        wanted="a recipe function's name",
        do=near or "copy the name from the recipe, or leave --recipe out and give the YAML that its --dryrun writes",
    )


def _near(table: _Table, name: str, place: int | None) -> str:
    from difflib import get_close_matches

    lines = (line.split() for line in table.recipes.split("\n") if line)
    names = [words[0] for words in lines if place is None or words[place + 1] != "-"]
    found = get_close_matches(name[:200], names, n=_NEAREST, cutoff=0.6)
    return f"did you mean {', '.join(found)}?" if found else ""
