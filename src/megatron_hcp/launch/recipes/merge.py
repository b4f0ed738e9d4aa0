"""Merges a launch with the recipe that it, or `--recipe`, names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import lcm
from typing import Any

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.dialects.bridge.named import Named, recipe_of
from megatron_hcp.launch.dialects.bridge.reading import bridge_reading
from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.edit import edit_settings
from megatron_hcp.launch.fact import Fact, FromRecipe, Reading, Setting
from megatron_hcp.launch.recipes.table import Recipe, is_recipe, look_up

_ALONE = "<recipe>"


def alone(name: str) -> Reading:
    """The launch that consists only of a recipe."""
    return Reading(dialect="bridge", target=f"{_ALONE} {name}", form="overrides", complete=False)


def with_recipe(reading: Reading, name: str | None, version: str | None) -> Reading:
    """The reading with its recipe's settings, overridden by its own; unchanged if no recipe is known.

    `name` comes from the command line and overrides the launch's. A name in the launch that no release has is a custom
    recipe.

    Raises:
        HcpError: there is no such recipe, or not in this release; or the launch isn't a Bridge launch, or is complete.
    """
    named = recipe_of(reading)
    if name is None and (named is None or reading.complete or not _is_bridge(reading)):
        return reading
    if name is not None:
        if not _is_bridge(reading):
            raise HcpError(
                f"found --recipe {name} with a {reading.dialect} launch", wanted="a Megatron-Bridge one", do="omit it"
            )
        if reading.complete:
            raise HcpError(
                f"found --recipe {name} with {reading.target}, which has all settings", wanted="overrides", do="omit it"
            )
        named = named._replace(name=name) if named is not None and named.name == name else Named(name)
    assert named is not None
    if name is None and not is_recipe(named.name):
        note = f"{named.name} is not a recipe of any known Megatron-Bridge release"
        return reading._replace(notes=(*reading.notes, note))
    return _merged(reading, _given(look_up(named.name, version), named.arguments), named, name)


def _is_bridge(reading: Reading) -> bool:
    return FRAMEWORKS[reading.dialect].has_recipes


def _given(recipe: Recipe, arguments: Mapping[str, Any]) -> Recipe:
    """The recipe called with arguments: a key that one of them changes in an unknown way is unknown."""
    values = {setting.key: setting.value for setting in recipe.settings}
    unknown = dict(recipe.unknown)
    by_name = {parameter.name: parameter for parameter in recipe.parameters}
    touched: set[str] = set()
    for name, value in arguments.items():
        parameter = by_name.get(name)
        if parameter is None:
            keys = {*values, *unknown}  # an argument that is passed on may change anything
            sets: tuple[str, ...] = ()
        else:
            keys, sets = {*parameter.sets, *parameter.changes}, parameter.sets
        for key in sorted(keys):
            values.pop(key, None)
            unknown[key] = f"argument {name} of recipe {recipe.name} sets it"
            if key in sets and key not in touched:
                values[key] = value
                unknown.pop(key)
        touched |= keys
    settings = tuple(Setting(key, value) for key, value in values.items())
    return recipe._replace(settings=settings, unknown=unknown, varies=None if arguments else recipe.varies)


def _merged(reading: Reading, recipe: Recipe, named: Named, stated: str | None) -> Reading:
    below = bridge_reading("bridge", reading.target, reading.form, recipe.settings, complete=True)
    cleared = tuple(f"{setting.key}." for setting in reading.settings if setting.value is None)
    objects = {setting.key.rpartition(".")[0] for setting in reading.settings}
    replaced = {setting.key for setting in below.settings if setting.key in objects}  # there, an object by its name
    cleared += tuple(f"{key}." for key in replaced)
    kept = tuple(one for one in below.settings if one.key not in replaced and not one.key.startswith(cleared))
    base = below._replace(settings=kept, unknown=recipe.unknown)
    edited = edit_settings(base, reading.settings, reading.unknown).reading
    if named.synchronizes and not recipe.release.startswith(_UNSYNCHRONIZED):
        edited = _synchronized(edited, {setting.key for setting in reading.settings})
    whole = bridge_reading(reading.dialect, reading.target, reading.form, edited.settings, complete=True)
    only_overrides = all("." in setting.key or setting.key == "recipe" for setting in reading.settings)
    varies = recipe.varies if only_overrides else None  # an option of the launcher's may set anything
    origin = FromRecipe(recipe.origin, {setting.key: setting for setting in below.settings}, stated, varies)
    facts = {name: _from(fact, origin) for name, fact in whole.facts.items()}
    unknown = {**edited.unknown, **whole.unknown, **reading.unknown}
    vision = origin.by_key.get("vision")
    facts.pop("vision", None)
    if vision is not None:
        facts["vision"] = Fact(vision.value, "recipe")
    elif recipe.model:
        unknown["vision"] = next((why for key, why in recipe.unknown.items() if key.startswith("model.")), "")
    return reading._replace(
        settings=whole.settings,
        facts={**facts, **{name: fact for name, fact in reading.facts.items() if name not in facts}},
        unknown=unknown,
        complete=True,
        role=whole.role,
        recipe=origin,
    )


_UNSYNCHRONIZED = "0.3."
"""Releases whose launcher doesn't change the settings."""
_DATASET_LENGTHS = ("dataset.seq_length", "dataset.sequence_length")
_CP_SIZES = ("model.context_parallel_size", "dist.eval_context_parallel_size")
_SPECS = "dataset.offline_packing_specs"


def _synchronized(reading: Reading, stated: Collection[str]) -> Reading:
    """The settings as Bridge's launcher leaves them after the overrides (from 0.6 on recipe_runner.py, `sync_*`).

    Before 0.6 it sets only the model's length, and no dataset has the keys that the others look for. A model's length
    that the launch states is kept, although the launcher replaces it with the dataset's: LEN003 warns about that.
    """
    values = {setting.key: setting.value for setting in reading.settings}
    cp_sizes = [size for key in _CP_SIZES if isinstance(size := values.get(key), int)]
    edits = []
    length = next((values[key] for key in _DATASET_LENGTHS if isinstance(values.get(key), int)), None)
    if length is not None and values.get("model.seq_length") != length and "model.seq_length" not in stated:
        edits.append(Setting("model.seq_length", length))
    packs = values.get("dataset.enable_offline_packing")
    if (packs is not None or "dataset.enable_in_batch_packing" in values) and max(cp_sizes, default=1) > 1:
        edits += [Setting("model.calculate_per_token_loss", True), Setting("ddp.average_in_collective", False)]
    if packs is True:
        if length is not None:
            edits.append(Setting(f"{_SPECS}.packed_sequence_size", length))
        edits += _padding(values, cp_sizes)
    none = (_SPECS,) if packs is True and _SPECS in values and values[_SPECS] is None else ()
    return edit_settings(reading, edits, none).reading


def _padding(values: Mapping[str, Any], cp_sizes: Sequence[int]) -> list[Setting]:
    key = f"{_SPECS}.pad_seq_to_mult"
    padding, tp = values.get(key) or 1, values.get("model.tensor_model_parallel_size", 1)
    if not isinstance(padding, int) or not isinstance(tp, int):
        return []
    tp = tp if values.get("model.sequence_parallel") is True else 1
    multiples = [multiple for cp in cp_sizes for multiple in (2 * cp if cp > 1 else 1, cp * tp if tp > 1 else 1)]
    return [Setting(key, lcm(padding, *multiples))]


def _from(fact: Fact, origin: FromRecipe) -> Fact:
    return fact._replace(origin="recipe") if fact.key in origin.by_key and fact.location is None else fact
