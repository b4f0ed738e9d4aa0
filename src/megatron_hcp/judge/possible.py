"""Which releases a launch can have that states none: those that have its recipe and all of its options."""

from __future__ import annotations

from megatron_hcp.launch.dialects.bridge.named import recipe_of
from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.facts.last_read import BRANCHES
from megatron_hcp.launch.facts.releases import RELEASES

_PARSED = ("mlm", "slime")
"""Dialects whose options Megatron-LM's own parser reads."""


def possible_releases(launch: Launch, package: str) -> tuple[str, ...]:
    """The releases of `RELEASES` that the launch may be for, oldest first; all of them where nothing tells them apart.

    The newest one stands for what comes after it, too.
    """
    every = RELEASES[package]
    if package == "bridge":
        possible = _with_the_recipe(launch, every)
    elif package == "mcore":
        possible = _below_the_recipe(launch, every) if _has_recipes(launch) else _with_the_options(launch, every)
    else:
        return every
    return possible or every


def _has_recipes(launch: Launch) -> bool:
    return FRAMEWORKS[launch.dialect].has_recipes


def _with_the_recipe(launch: Launch, every: tuple[str, ...]) -> tuple[str, ...]:
    """Megatron-Bridge's releases that have the recipe. One that was not read counts as the newest before it."""
    from megatron_hcp.launch.recipes.table import is_recipe, releases, releases_with

    named = recipe_of(launch.reading) if _has_recipes(launch) else None
    stated = launch.reading.recipe.stated if launch.reading.recipe is not None else None
    name = stated or (named.name if named is not None else "")
    if not is_recipe(name):
        return every
    read, having = releases(), releases_with(name)
    if having[-1] == read[-1]:
        having = [*having, every[-1]]
    before = {one: [known for known in read if _numbers(known) <= _numbers(one)] or read[:1] for one in every}
    return tuple(one for one in every if one in having or before[one][-1] in having)


def _below_the_recipe(launch: Launch, every: tuple[str, ...]) -> tuple[str, ...]:
    """megatron-core's releases from one minor version before the one that the oldest possible Bridge pins.

    Bridge 0.3 pins 0.16 and takes 0.15, too; from 0.4 on, its package states no range.
    """
    from megatron_hcp.validators.table import table_of

    stated = launch.facts.get("bridge")
    oldest = str(stated.value) if stated is not None else possible_releases(launch, "bridge")[0]
    pins = {name: pinned for name, *_, pinned in table_of("megatron-bridge").releases if pinned not in BRANCHES}
    if oldest not in pins:
        return every
    major, minor = _numbers(pins[oldest])[:2]
    return tuple(one for one in every if _numbers(one)[:2] >= (major, minor - 1))


def _with_the_options(launch: Launch, every: tuple[str, ...]) -> tuple[str, ...]:
    """megatron-core's releases whose parser has all of the launch's options; a branch counts as the newest."""
    from megatron_hcp.launch.facts.known_options import revision_of, table
    from megatron_hcp.launch.facts.option_table import option_table

    if launch.dialect not in _PARSED:
        return every
    own = option_table("framework_options/slime.txt").rows if launch.dialect == "slime" else {}
    keys = (one.key for one in launch.reading.settings if isinstance(one.value, list) and one.key not in own)
    having = table().revisions_for(keys)
    found = tuple(one for one in every if revision_of(_numbers(one), "main") in having)
    is_for_a_branch = not set(BRANCHES).isdisjoint(having) and every[-1] not in found
    return (*found, every[-1]) if is_for_a_branch else found


def _numbers(release: str) -> tuple[int, int, int]:
    major, minor, patch = map(int, release.partition("+")[0].split("."))
    return major, minor, patch
