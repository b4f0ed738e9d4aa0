"""ms-swift: the arguments of `megatron sft|pt|rlhf`, on a command line or in a YAML."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from megatron_hcp.ground.numbers import whole_number
from megatron_hcp.launch.dialects.table import index_of
from megatron_hcp.launch.fact import Fact, Reading, Setting
from megatron_hcp.launch.forms.yaml.settings import YamlDoc

_EXTRA = "megatron_extra_kwargs"
"""A JSON mapping of further fields of the model's config."""
_MAX_JSON = 20_000


def read_ms_swift_yaml(doc: YamlDoc) -> Reading:
    """A reading of the YAML that `megatron sft FILE` takes: arguments by name, and variables under `ENV`."""
    arguments = [setting for setting in doc.settings if "." not in setting.key]
    facts = {
        f"env.{setting.key.removeprefix('ENV.')}": Fact(str(setting.value), "launch", setting.location, setting.key)
        for setting in doc.settings
        if setting.key.startswith("ENV.") and isinstance(setting.value, str | int)
    }
    reading = Reading(
        "ms-swift", doc.file, "yaml", with_extra(arguments), facts, acceptances=doc.acceptances, text=doc.text
    )
    return reading._replace(facts={**facts, **ranks_of(facts, {})[0]})


def ranks_of(facts: Mapping[str, Fact], unknown: Mapping[str, str]) -> tuple[dict[str, Fact], dict[str, str]]:
    """(facts on how the ranks are started, why others are unknown), from the variables that ms-swift reads.

    Source: swift/cli/main.py `get_torchrun_args`: torchrun if NPROC_PER_NODE or NNODES is set, else one process.
    """
    names = {"gpus_per_node": "env.NPROC_PER_NODE", "nodes": "env.NNODES"}
    hidden = {name: unknown[variable] for name, variable in names.items() if variable in unknown}
    found: dict[str, Fact] = {}
    if hidden or any(variable in facts for variable in names.values()):
        found["start"] = Fact("torchrun", "derived")
        for name, variable in names.items():
            fact = facts.get(variable)
            number = 1 if fact is None else whole_number(str(fact.value), 9)
            if name not in hidden and number:
                found[name] = Fact(1, "default") if fact is None else fact._replace(value=number)
    return found, hidden


def with_extra(settings: Iterable[Setting]) -> tuple[Setting, ...]:
    """The arguments, with what `megatron_extra_kwargs` adds to the model's config."""
    given = list(settings)
    index = index_of("ms-swift")
    for setting in list(given):
        extra = _mapping(setting.value) if setting.key == _EXTRA else {}
        names = {name for name in extra if name in index}
        given = [other for other in given if other.key not in names]
        given += [Setting(name, extra[name], setting.location) for name in extra if name in names]
    return tuple(given)


def _mapping(value: Any) -> dict[str, Any]:
    """The mapping in a JSON text or a one-element list; empty if there is none."""
    text = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(text, str) or len(text) > _MAX_JSON:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
