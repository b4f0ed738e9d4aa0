"""From a `Reading` to a `Launch`: settings become facts, then defaults, the model, derivations, assumptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from megatron_hcp.launch.coerce import coerce
from megatron_hcp.launch.complete import derive
from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.dialects.table import FACTS, default_of, index_of
from megatron_hcp.launch.edit import edit_facts, edit_settings
from megatron_hcp.launch.fact import Elsewhere, Fact, Launch, Reading, Setting
from megatron_hcp.launch.facts.spec import UNKNOWN
from megatron_hcp.launch.facts.topics import MODEL_NAMES
from megatron_hcp.launch.images import IMAGE_FACTS, facts_of_image
from megatron_hcp.launch.named_model import facts_of_name


def build_launch(
    reading: Reading, *, assumed: Mapping[str, Fact] | None = None, model: Mapping[str, Fact] | None = None
) -> Launch:
    """The launch that a reading describes.

    Precedence, lowest first: upstream's default (for an unknown recipe, the presumed value), what the container image
    holds, the repository's `.hcp.yaml`, the recipe, the model's config.json (or, without it, the sizes of a model that
    the launch names), the launch, an assumption. Derived facts are computed last and never replace a stated one.

    Raises:
        HcpError: a value doesn't have its fact's type (one line, with the location).
    """
    assumed, model = assumed or {}, model or {}
    stated, unknown = _stated(reading)
    facts = _defaults(reading, stated, unknown)
    imaged = _of_the_image(reading, assumed)
    facts |= imaged | dict(reading.project)
    for name in reading.project:
        unknown.pop(name, None)
    by_recipe = {name: fact for name, fact in stated.items() if fact.origin == "recipe"}
    facts |= by_recipe
    if not model and (model_name := stated.get("model_name")) is not None:
        facts |= {name: fact for name, fact in facts_of_name(model_name, reading).items() if name not in unknown}
    facts |= _beside_a_spec(model) if "spec" in stated else model
    for name in model:
        if isinstance(unknown.get(name), Elsewhere):
            unknown.pop(name)
    facts |= {name: fact for name, fact in stated.items() if name not in by_recipe}
    conflicts = []
    for name, fact in assumed.items():
        before = facts.get(name)
        if before is not None and before.origin in ("launch", "image") and before.value != fact.value:
            conflicts.append((name, before, fact))
        facts[name] = fact
        unknown.pop(name, None)
    for name, fact in reading.project.items():
        said = stated.get(name) or imaged.get(name)
        if said is not None and said.value != fact.value and name not in assumed:
            conflicts.append((name, said, fact))
    derive(reading.dialect, facts, unknown)
    return Launch(reading, facts, unknown, assumed, model, tuple(conflicts))


def _of_the_image(reading: Reading, assumed: Mapping[str, Fact]) -> dict[str, Fact]:
    """The versions of the container image; the one that `.hcp.yaml` names counts if nothing else names one."""
    if any(name in reading.facts or name in assumed for name in IMAGE_FACTS):
        return facts_of_image(reading, assumed)
    if "image" in reading.project:
        return facts_of_image(reading, {**assumed, "image": reading.project["image"]})
    return {}


def _beside_a_spec(model: Mapping[str, Fact]) -> dict[str, Fact]:
    """A layer spec builds its own linear attention, whatever Megatron would build for the config.json.

    Source: slime_plugins/models/qwen3_5.py `get_qwen3_5_spec`.
    """
    return {
        name: fact for name, fact in model.items() if (name, fact.value) != ("attention_variant", "gated_delta_net")
    }


def with_settings(launch: Launch, edits: Iterable[Setting], removed: frozenset[str] = frozenset()) -> Launch:
    """The launch with the settings changed, under whatever keys their facts were written."""
    edit = edit_settings(launch.reading, edits, removed)
    return build_launch(edit.reading, assumed=edit.still_assumed(launch.assumed), model=launch.model)


def with_facts(launch: Launch, facts: Mapping[str, Fact]) -> Launch:
    """The launch with facts replaced that have no key (an environment variable, the placement)."""
    edit = edit_facts(launch.reading, facts)
    return build_launch(edit.reading, assumed=edit.still_assumed(launch.assumed), model=launch.model)


def _stated(reading: Reading) -> tuple[dict[str, Fact], dict[str, str]]:
    index = index_of(reading.dialect, reading.role)
    facts = dict(reading.facts)
    unknown: dict[str, str] = {}
    written: dict[str, dict[str, Fact]] = {}
    for setting in reading.settings:
        entry = index.get(setting.key)
        if entry is None:
            continue
        value = coerce(FACTS[entry.fact], _unwrap(reading.dialect, setting), entry.negated)
        by_recipe = reading.recipe is not None and reading.recipe.by_key.get(setting.key) == setting
        fact = Fact(value, "recipe" if by_recipe else "launch", setting.location, setting.key)
        written.setdefault(entry.fact, {})[setting.key] = fact  # of a repeated key, the last occurrence
    order: dict[str, int] = {}
    for name, by_key in written.items():
        key, *more = by_key
        if more:  # few facts are written under several keys
            order = order or {key: place for place, key in enumerate(index)}
            key = min(by_key, key=lambda key: (_precedence(key, by_key[key].value), order[key]))
        facts[name] = by_key[key]
    for key, reason in reading.unknown.items():
        name = index[key].fact if key in index else key
        if name in reading.facts:
            continue
        facts.pop(name, None)
        unknown[name] = reason
    for name, reason in _below_unread_sections(reading, facts).items():
        facts.pop(name, None)
        unknown.setdefault(name, reason)
    return facts, unknown


def _below_unread_sections(reading: Reading, stated: Mapping[str, Fact]) -> dict[str, str]:
    """Fact -> why a section that may set it can't be read: a mapping in one word (`override_config=$X`), or `env`.

    A key that the launch writes itself stays, but for variables: what `env` reads comes after them.
    """
    index = index_of(reading.dialect, reading.role)
    found: dict[str, str] = {}
    for section, reason in reading.unknown.items():
        if section in index or section in FACTS:
            continue
        below = f"{section}."
        found |= {one.fact: reason for key, one in index.items() if key.startswith(below) and one.fact not in stated}
        if section == "env":
            found |= {name: reason for name in stated if name.startswith(below)}
    return found


def _precedence(key: str, value: object) -> int:
    """Where a key stands among those of its fact, whatever their order in the table: the least one counts.

    A null yields: that field has another name by now, or had one. But Bridge copies all fields of `mixed_precision`
    over the model's, its nulls too (`update_config_with_precision_overrides`), and those of `comm_overlap` that are
    set (`CommOverlapConfig.setup`).
    """
    if value is None and not key.startswith("mixed_precision."):
        return 2
    return 0 if key.startswith("comm_overlap.") else 1


def _unwrap(dialect: str, setting: Setting) -> Setting:
    """argparse's `nargs="+"` with one value: Megatron-LM keeps the value itself, not a one-element list."""
    if FRAMEWORKS[dialect].is_command_line and isinstance(setting.value, list) and len(setting.value) == 1:
        return setting._replace(value=setting.value[0])
    return setting


@cache
def _upstreams_defaults(dialect: str) -> dict[str, Fact]:
    """By name, the facts that upstream has a default for."""
    values = ((name, default_of(spec, dialect)) for name, spec in FACTS.items())
    return {name: Fact(value, "default") for name, value in values if value is not UNKNOWN}


def _defaults(reading: Reading, stated: Mapping[str, Fact], unknown: Mapping[str, str]) -> dict[str, Fact]:
    if reading.unseen is not None:
        return {}
    facts: dict[str, Fact] = {}
    absent = [name for name in FACTS if name not in stated and name not in unknown]
    if reading.complete:
        upstreams = _upstreams_defaults(reading.dialect)
        facts = {name: upstreams[name] for name in absent if name in upstreams}
    by_model = FRAMEWORKS[reading.dialect].model_decides
    if by_model if reading.complete else FRAMEWORKS[reading.dialect].has_recipes:
        # A recipe sets what an override list omits; in verl the model sets what verl has no default for.
        from megatron_hcp.launch.facts.presumed import presumptions

        table = presumptions()
        names = MODEL_NAMES if by_model else table
        facts |= {
            name: Fact(table[name].value, "presumed")
            for name in absent
            if name in table and name in names and name not in facts
        }
    return facts
