"""The recipes of several releases of Megatron-Bridge as the text that megatron_hcp.launch.recipes reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from bridge_recipes import Parameter, Recipe
from follow.values import UNKNOWN, Node, Unknown

from megatron_hcp.launch.dialects.table import index_of
from megatron_hcp.launch.recipes.table import ROWS_A_BLOCK
from megatron_hcp.validators.evaluate import Evaluation
from megatron_hcp.validators.given.container import CLASSES, kind_of_model
from megatron_hcp.validators.table import program_of_release
from megatron_hcp.validators.upstreams import MEGATRON_BRIDGE, revision_in
from megatron_hcp.validators.values import Thing

HEADER = "# Written by lab/recipes/table.py from Megatron-Bridge's sources; `hcp show --recipe NAME` reads it.\n"
KEPT = (
    "comm_overlap",
    "peft",
    *(
        f"{section}.{name}"
        for section, names in {
            "train": "train_iters",
            "scheduler": "lr_warmup_iters lr_decay_iters lr_decay_style start_weight_decay "
            "end_weight_decay override_opt_param_scheduler",
            "optimizer": "optimizer use_precision_aware_optimizer use_distributed_optimizer",
            "ddp": "use_distributed_optimizer overlap_param_gather overlap_grad_reduce",
            "comm_overlap": "delay_wgrad_compute defer_embedding_wgrad_compute overlap_grad_reduce "
            "overlap_param_gather",
            "checkpoint": "pretrained_checkpoint async_save",
            "model": "add_bias_linear bias_activation_fusion fine_grained_activation_offloading "
            "moe_expert_capacity_factor moe_expert_rank_capacity_factor "
            "moe_pad_expert_input_to_capacity moe_paged_stash mtp_hybrid_override_pattern "
            "mtp_use_repeated_layer no_rope_freq overlap_dispatch_backward_with_experts_wgrad "
            "use_transformer_engine_op_fuser variable_seq_lengths",
        }.items()
        for name in names.split()
    ),
)
"""Those that the table keeps of each recipe: what decides most guards. Of the others it says that they vary."""


class _Pool:
    """Lines, each once, numbered by their first use."""

    def __init__(self) -> None:
        self.lines: dict[str, int] = {}

    def number(self, line: str) -> int:
        return self.lines.setdefault(line, len(self.lines))


def as_text(releases: Mapping[str, Sequence[Recipe]]) -> str:
    """Sections, an empty line after each: releases, settings, sets of unknown keys, parameters, the four columns of the
    rows, recipes, and the releases of which it is known what their validators read beside the facts, with the keys in
    which recipes differ, and the digest of all keys that were looked up.

    A row is a recipe as it is in some release: its model, its settings, its unknown keys, its parameters, as numbers
    of lines in the sections above. A recipe has a row for each release, or `-`. Rows that are alike stand together, and
    each says in which settings it differs from the one before: a third of the size in a wheel.
    """
    settings, unknown, parameters, rows = _Pool(), _Pool(), _Pool(), _Pool()
    recipes: dict[str, list[str]] = {}
    told = {name: found for name, found in releases.items() if any(recipe.values.start for recipe in found)}
    varies: set[str] = set()
    for name, found in told.items():
        defaults = Defaults(name)
        for recipe in found:
            values = {**recipe.values.start, **recipe.values.known}
            varies |= varying(defaults.of(values), values)
    for place, found in enumerate(releases.values()):
        for recipe in found:
            row = rows.number(_row(recipe, settings, unknown, parameters))
            recipes.setdefault(recipe.name, ["-"] * len(releases))[place] = str(row)
    order, lines = differences(list(rows.lines))
    names = [
        " ".join((name, *(number if number == "-" else str(order[int(number)]) for number in numbers)))
        for name, numbers in sorted(recipes.items())
    ]
    facts = index_of("bridge").keys()
    asked = {key for found in told.values() for recipe in found for part in recipe.values[:2] for key in part}
    differ = " ".join(sorted(varies - facts | unasked(told, asked)))
    start = (" ".join(told), differ, digest_of_keys(told))
    columns = zip(*(line.split("|") for line in lines))
    sections = (releases, settings.lines, unknown.lines, parameters.lines, *columns, names, start)
    return HEADER + "\n".join("\n".join(lines) + "\n" for lines in sections)


def differences(rows: Sequence[str]) -> tuple[list[int], list[str]]:
    """Where each row goes, and the rows in that order, with their differences for their settings."""
    cells = [row.split("|") for row in rows]
    own = [set(map(int, row[1].split())) for row in cells]
    left, order = list(range(1, len(rows))), [0]
    while left:
        last = own[order[-1]]
        order.append(min(left, key=lambda row: (len(last ^ own[row]), row)))
        left.remove(order[-1])
    place = [0] * len(rows)
    lines: list[str] = []
    for at, row in enumerate(order):
        place[row] = at
        told = own[row] ^ own[order[at - 1]] if at % ROWS_A_BLOCK else own[row]
        model, _, *others = cells[row]
        lines.append("|".join((model, " ".join(map(str, _steps(sorted(told)))) or "-", *others)))
    return place, lines


def _steps(numbers: Sequence[int]) -> list[int]:
    """The first number, and of each other one how much it is more than the one before."""
    return [number - before for number, before in zip(numbers, (0, *numbers))]


def _row(recipe: Recipe, settings: _Pool, unknown: _Pool, parameters: _Pool) -> str:
    known = {**kept_of(recipe.values.start), **recipe.values.known}
    numbers = sorted(settings.number(f"{key} {_json(value)}") for key, value in known.items())
    keys = unknown.number(" ".join(sorted(recipe.values.unknown)) or "-")
    given = [str(parameters.number(_parameter(parameter))) for parameter in recipe.parameters]
    return "|".join((recipe.model or "-", " ".join(map(str, numbers)), str(keys), " ".join(given) or "-"))


def _parameter(parameter: Parameter) -> str:
    return f"{parameter.name}|{' '.join(parameter.sets)}|{' '.join(parameter.changes)}"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


class Defaults:
    """The defaults of the classes of a release's configuration, as the tables of validators have them."""

    def __init__(self, release: str) -> None:
        numbers = tuple(int(part) for part in release.partition("+")[0].split("."))
        name = revision_in(MEGATRON_BRIDGE, (numbers[0], numbers[1], numbers[2]))
        program = program_of_release(MEGATRON_BRIDGE.repo, name or "main")
        assert program is not None
        self._run = Evaluation(program, lambda *_: None)

    def of(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """By key, the defaults of the classes that these settings name."""
        model = {key[6:]: value for key, value in settings.items() if key.startswith("model.")}
        kinds = CLASSES | {"model": kind_of_model(self._run, model), "dataset": settings.get("dataset._target_", "")}
        fields = {
            f"{section}.{name}": value
            for section, kind in kinds.items()
            for name, value in self._run.defaults_of(str(kind)).items()
        }
        return {**self._run.defaults_of("ConfigContainer"), **fields}


def varying(defaults: Mapping[str, Any], settings: Mapping[str, Any]) -> set[str]:
    """The keys whose values are not the defaults, or not known to be."""
    return {key for key, value in settings.items() if key in defaults and not _is_default(value, defaults[key])}


def _is_default(value: Any, default: Any) -> bool:
    if isinstance(value, Node):
        return isinstance(default, Thing)
    return not isinstance(value, Unknown) and type(value) is type(default) and bool(value == default)


def kept_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the table keeps of a recipe beside the facts."""
    return {key: settings[key] for key in KEPT if not isinstance(settings.get(key, UNKNOWN), (Unknown, Node))}


def keys_of(releases: Iterable[str]) -> set[str]:
    """The keys of all settings that validators of these releases read."""
    targets = ("GPTDatasetConfig", "MockGPTDatasetConfig", "FinetuningDatasetConfig", "GPTSFTDatasetConfig",
               "HFDatasetConfig")  # fmt: skip
    models: tuple[dict[str, Any], ...] = ({}, {"multi_latent_attention": True}, {"hybrid_layer_pattern": "M*"})
    return {
        key
        for defaults in map(Defaults, releases)
        for target in targets
        for model in models
        for key in defaults.of(
            {"dataset._target_": target, **{f"model.{name}": value for name, value in model.items()}}
        )
    }


def unasked(releases: Iterable[str], asked: Collection[str]) -> set[str]:
    """The facts' keys that validators read and no recipe was asked for, as those of a fact that is new since: what a
    recipe sets them to is not known."""
    return (keys_of(releases) & index_of("bridge").keys()).difference(asked)


def digest_of_keys(releases: Iterable[str]) -> str:
    """Tells whether recipes were asked for all keys that the validators in the tables read."""
    return hashlib.sha256(" ".join(sorted(keys_of(releases))).encode()).hexdigest()[:12]
