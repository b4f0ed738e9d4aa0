"""From what the command line names to a `Launch`: read, change, assume, build."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hcp.launch.build import build_launch
from hcp.launch.edit import Edit
from hcp.launch.fact import Dialect, Fact, Launch, Reading
from hcp.launch.facts.table import key_dialect
from hcp.launch.read import read_target, read_text
from hcp.launch.source import standard_input


class LoadOptions(NamedTuple):
    """How a target is to be read: forced dialect, words after `--`, --set, --assume, --facts, --model, --recipe."""

    dialect: Dialect | None = None
    words: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    assumes: tuple[str, ...] = ()
    facts_file: str | None = None
    model_file: str | None = None
    recipe: str | None = None


def load_launch(target: str, options: LoadOptions) -> Launch:
    """The launch that a target describes; an empty target is a launch made of `options.words` alone.

    Raises:
        HcpError: the target, an option or a value cannot be used.
    """
    assumed = _assumed(options)
    edit = Edit(_read(target, options, assumed))
    reading = edit.reading
    if options.sets:
        from hcp.launch.sets import apply_sets

        edit = apply_sets(reading, options.sets)
    model: dict[str, Fact] = {}
    if options.model_file:
        from hcp.launch.hf import read_model

        model = read_model(options.model_file)
    return build_launch(edit.reading, assumed=edit.still_assumed(assumed), model=model)


def _read(target: str, options: LoadOptions, assumed: Mapping[str, Fact]) -> Reading:
    """The target's reading, with the settings of the recipe that it or `--recipe` names."""
    if not target and not options.words and options.recipe is not None:
        from hcp.launch.recipes.merge import alone

        reading = alone(options.recipe)
    else:
        reading = read_target(target, dialect=options.dialect, words=options.words, stdin=standard_input)
    if options.recipe is None and (key_dialect(reading.dialect) != "bridge" or reading.complete):
        return reading
    from hcp.launch.recipes.merge import with_recipe

    bridge = assumed.get("bridge")
    return with_recipe(reading, options.recipe, None if bridge is None else str(bridge.value))


def _assumed(options: LoadOptions) -> dict[str, Fact]:
    """What the options state about the launch; a later one wins."""
    if not (options.facts_file or options.assumes):
        return {}
    from hcp.launch.options import parse_assumptions, read_facts_file

    assumed = read_facts_file(options.facts_file) if options.facts_file else {}
    if "installed" in options.assumes:
        from hcp.launch.this_machine import installed_versions

        assumed |= {name: Fact(value, "installed") for name, value in installed_versions().items()}
    return assumed | parse_assumptions(text for text in options.assumes if text != "installed")


def load_text(launch: Launch, text: str) -> Launch:
    """The same launch with another text in place of its file: how a patch is proved."""
    reading = read_text(text, launch.reading.target, dialect=launch.dialect)
    return build_launch(reading._replace(dialect=launch.dialect), assumed=launch.assumed, model=launch.model)
