"""Texts that Hydra doesn't read as booleans."""

from __future__ import annotations

from megatron_hcp.launch.dialects.table import FACTS, index_of
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import BRIDGE_OMEGACONF
from megatron_hcp.rules.view import View

_OFF = ("off", "no")


@rule(
    "KEY009",
    "error silent never",
    source=(
        BRIDGE_OMEGACONF.says("parse_hydra_overrides", "parser.parse_overrides(overrides=overrides)", ">=0.3"),
        BRIDGE_OMEGACONF.says("_apply_overrides", "setattr(config_obj, key, final_value)", ">=0.3"),
    ),
    applies=lambda v: v.launch.dialect == "bridge" and any(s.sign is not None for s in v.launch.reading.settings),
    good=Example("bridge", "model.sequence_parallel=false model.tensor_model_parallel_size=2"),
    bad=Example("bridge", "model.sequence_parallel=off model.tensor_model_parallel_size=2"),
)
def a_boolean_of_an_override_is_true_or_false(v: View) -> Problem | None:
    """An override switches a setting off with false, not with off or no.

    In Hydra's grammar only true and false are booleans: off, no, on and yes are texts. Megatron-Bridge sets the field
    to the text without converting it, and a text counts as true. In a YAML file off and no are booleans.
    """
    index = index_of(v.dialect, v.launch.reading.role)
    found = [
        setting
        for setting in v.launch.reading.settings
        if setting.sign is not None
        and isinstance(setting.value, str)
        and setting.value.lower() in _OFF
        and setting.key in index
        and FACTS[index[setting.key].fact].type == "bool"
    ]
    if not found:
        return None
    first = found[0]
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return Problem(
        message=f"Hydra reads {first.value} as a text, which counts as true",
        found=f"{first.key}={first.value}{more}",
        wanted=f"{first.key}=false",
        facts=(index[first.key].fact,),
        fixes=(Fix({index[one.key].fact: index[one.key].negated for one in found}, "as Hydra reads it"),),
        location=first.location,
    )
