"""From the command line's arguments to a `Launch`: read, change, assume, build."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.edit import Edit, apply_sets
from megatron_hcp.launch.fact import ALONE, Beside, Dialect, Fact, Launch, ProjectSettings, Reading, UpstreamTree
from megatron_hcp.launch.images import facts_of_image
from megatron_hcp.launch.readers.target import read_target, read_targets, read_text
from megatron_hcp.launch.source import standard_input


class LoadOptions(NamedTuple):
    """How a target is to be read: forced dialect, words after `--`, --set, --assume, --facts, --model, --recipe,
    --source and --args as `Beside`, --upstream, and how to find what a target's repository states (`.hcp.yaml`)."""

    dialect: Dialect | None = None
    words: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    assumes: tuple[str, ...] = ()
    facts_file: str | None = None
    model_file: str | None = None
    recipe: str | None = None
    beside: Beside = ALONE
    upstream: tuple[UpstreamTree, ...] = ()
    find_project: Callable[[str], ProjectSettings | None] | None = None
    project: ProjectSettings = ProjectSettings()
    """What was found so."""
    cached: bool = True
    """Whether hcp's cache may be read and written."""


def load_launch(target: str, options: LoadOptions) -> Launch:
    """The launch that a target describes; an empty target is a launch made only of `options.words`.

    Raises:
        HcpError: the target, an option or a value can't be used.
    """
    options = _in_repository(target, options)
    if _is_recipe_alone(target, options):
        return _loaded(_recipe_alone(options), options)
    return _loaded(read_target(target, **_how(target, options)), options)


def load_launches(target: str, options: LoadOptions) -> list[Launch]:
    """Every launch that a target describes: one, except for a script with several training commands.

    Raises:
        HcpError: as `load_launch`.
    """
    options = _in_repository(target, options)
    if _is_recipe_alone(target, options):
        return [_loaded(_recipe_alone(options), options)]
    return [_loaded(reading, options) for reading in read_targets(target, **_how(target, options))]


def load_text_as(text: str, target: str, options: LoadOptions) -> list[Launch]:
    """Every launch in a text that stands for a file, which may hold another one by now: an editor's.

    Raises:
        HcpError: as `load_launch`.
    """
    options = _in_repository(target, options)
    return [_loaded(reading, options) for reading in read_targets(target, text=text, **_how(target, options))]


def _in_repository(target: str, options: LoadOptions) -> LoadOptions:
    """The options with what the target's repository states; what they state themselves wins."""
    stated = None if options.find_project is None else options.find_project(target)
    if stated is None:
        return options
    sources = (*options.beside.sources, *stated.sources)
    beside = options.beside._replace(sources=sources)
    return options._replace(project=stated, dialect=options.dialect or stated.dialect, beside=beside)


def _how(target: str, options: LoadOptions) -> dict[str, Any]:
    dialect = options.dialect
    if not target and options.recipe is not None and not any(word.startswith("--") for word in options.words):
        dialect = dialect or "bridge"  # a recipe is Megatron-Bridge's, and these words are its overrides
    return {"dialect": dialect, "words": options.words, "stdin": standard_input, "beside": _beside(options)}


def _beside(options: LoadOptions) -> Beside:
    """What a script is read with: also the variables that are assumed."""
    by_project = [name for name in options.project.facts if name.startswith("env.")]
    if not by_project and not any("env." in text for text in options.assumes):
        return options.beside
    variables = [
        (name.removeprefix("env."), fact.value)
        for name, fact in {**options.project.facts, **assumed_facts(options)}.items()
        if name.startswith("env.") and fact.origin in ("assumed", "project") and fact.value is not None
    ]
    return options.beside._replace(variables=tuple(variables))


def _is_recipe_alone(target: str, options: LoadOptions) -> bool:
    return not target and not options.words and options.recipe is not None


def _recipe_alone(options: LoadOptions) -> Reading:
    from megatron_hcp.launch.recipes.merge import alone

    return alone(options.recipe or "")


def _loaded(reading: Reading, options: LoadOptions) -> Launch:
    assumed = assumed_facts(options)
    project = options.project.facts
    if "mcore" in assumed and "mcore" in project:  # another version than the one that the project's branch is of
        project = {name: fact for name, fact in project.items() if name != "mcore_branch"}
    reading = _with_recipe(reading, options.recipe, {**project, **assumed})
    if project:
        reading = _of_project(reading, project)
    if options.upstream:
        notes = (*reading.notes, *_notes_on_releases(options, assumed))
        reading = reading._replace(upstream=options.upstream, notes=notes)
    edit = Edit(reading)
    if options.sets:
        edit = apply_sets(reading, options.sets)
    model: dict[str, Fact] = {}
    if options.model_file:
        from megatron_hcp.launch.hf import read_model

        model = read_model(options.model_file)
    launch = build_launch(edit.reading, assumed=edit.still_assumed(assumed), model=model)
    if options.project.model and not model and "model_name" not in launch.facts:
        from megatron_hcp.launch.hf import read_model

        launch = build_launch(edit.reading, assumed=launch.assumed, model=read_model(options.project.model))
    return launch


def _of_project(reading: Reading, facts: Mapping[str, Fact]) -> Reading:
    others = tuple(other._replace(project=facts) for other in reading.others)
    return reading._replace(project=facts, others=others)


def _notes_on_releases(options: LoadOptions, assumed: Mapping[str, Fact]) -> Iterator[str]:
    """Which of two stated releases counts, where --upstream and an assumption differ."""
    from megatron_hcp.launch.upstream import versions_of

    for name, fact in versions_of(options.upstream).items():
        stated = assumed[name].value
        if stated != fact.value:
            yield (
                f"--upstream is {name} {fact.value}, and {name}={stated} is stated: rules go by what is stated, "
                "upstream's start-up by the tree"
            )


def _with_recipe(reading: Reading, name: str | None, assumed: Mapping[str, Fact]) -> Reading:
    """The reading with the settings of the recipe named in it or by `--recipe` (`name`)."""
    if name is None and (not FRAMEWORKS[reading.dialect].has_recipes or reading.complete):
        return reading
    from megatron_hcp.launch.recipes.merge import with_recipe

    bridge = assumed.get("bridge")
    if bridge is None and (held := facts_of_image(reading, assumed).get("bridge")) is not None:
        # The launch may run another Bridge than its image's: then all releases are looked at.
        with contextlib.suppress(HcpError):
            return with_recipe(reading, name, str(held.value))
    return with_recipe(reading, name, None if bridge is None else str(bridge.value))


def assumed_facts(options: LoadOptions) -> dict[str, Fact]:
    """What the options state about the launch; a later one wins."""
    if not (options.facts_file or options.assumes or options.upstream):
        return {}
    from megatron_hcp.launch.options import parse_assumptions, read_facts_file

    assumed: dict[str, Fact] = {}
    if options.upstream:
        from megatron_hcp.launch.upstream import versions_of

        assumed |= versions_of(options.upstream)
    if options.facts_file:
        assumed |= read_facts_file(options.facts_file)
    if "installed" in options.assumes:
        from megatron_hcp.launch.this_machine import installed_versions

        assumed |= {name: Fact(value, "installed") for name, value in installed_versions().items()}
    return assumed | parse_assumptions(text for text in options.assumes if text != "installed")


def load_text(launch: Launch, text: str) -> Launch:
    """The same launch with another text in place of its file, to verify a patch."""
    before = launch.reading
    reading = read_text(text, before.target, dialect=launch.dialect, beside=before.beside, ordinal=before.ordinal)
    reading = reading._replace(dialect=launch.dialect, upstream=before.upstream)
    if before.recipe is not None:
        reading = _with_recipe(reading, before.recipe.stated, {**before.project, **launch.assumed})
    if before.project:
        reading = _of_project(reading, before.project)
    return build_launch(reading, assumed=launch.assumed, model=launch.model)
