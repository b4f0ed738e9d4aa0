"""Overrides that Hydra rejects: of keys that the configuration doesn't have, or `+key` of one that it has."""

from __future__ import annotations

import re
from typing import Literal

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.dialects.verl.config import Release
from megatron_hcp.launch.fact import Setting
from megatron_hcp.rules.rule import Example, Fix, Problem, Rename, rule
from megatron_hcp.rules.upstream import BRIDGE_OMEGACONF, VERL_MAIN_PPO
from megatron_hcp.rules.view import View

_MAIN = ("verl.trainer.main_ppo", "verl/trainer/main_ppo.py")
_NOT_STOCK = ("--config-dir", "experiment")
"""What may add to verl's own configurations."""
_OWN_FOLDERS = ("config", "./config")
_RECIPE_PROGRAM = "run_recipe.py"
_BRIDGE_READ = (0, 7, 0)
"""The newest Megatron-Bridge whose keys were read."""
_OPEN = ("env_vars", "dataset")
"""Bridge's sections whose keys depend on more than their classes."""
_OF_DCP020 = (".dynamic_context_parallel", ".max_seqlen_per_dp_cp_rank")
"""verl: the switch and its budget; that rule says which releases have them."""
_OF_CP = r"\.override_\w+\.|(^|[._])(cp|context_parallel|sequence_parallel)(_|$)"


class _Rejected(NamedTuple):
    """An override that Hydra rejects, and why; `sure` if every release that may be meant rejects it."""

    setting: Setting
    why: Literal["missing", "present"]
    sure: bool = True


def _is_own_config(v: View) -> bool:
    """Whether the launch surely runs verl's own program with its own Megatron configuration."""
    from megatron_hcp.launch.dialects.verl.config import NAME

    reading = v.launch.reading
    by_key = {setting.key: setting.value for setting in reading.settings}
    script = str(v.get("script") or "")
    if reading.form != "shell" or not script.endswith(_MAIN) or any(key in by_key for key in _NOT_STOCK):
        return False
    if any("@" in key for key in by_key) or by_key.get("--config-path", "config") not in _OWN_FOLDERS:
        return False
    name = str(by_key.get("--config-name", "ppo_trainer")).removesuffix(".yaml")
    return name == NAME or (name == "ppo_trainer" and by_key.get("model_engine") == "megatron")


def _release(v: View, name: str) -> Release | None:
    return v.release(name) if v.known(name) else None


def _by_verl(v: View) -> list[_Rejected]:
    from megatron_hcp.launch.dialects.verl.config import megatron_config

    config, release = megatron_config(), _release(v, "verl")
    if release is not None and not config.first <= release <= config.last:
        return []
    found: list[_Rejected] = []
    added: list[str] = []
    for setting in _overrides(v):
        if setting.key.endswith(_OF_DCP020) and v.get("dynamic_context_parallel"):
            continue
        if setting.sign == "" and not config.has(setting.key, release) and not _is_inside(setting.key, added):
            found.append(_Rejected(setting, "missing", release is not None or bool(re.search(_OF_CP, setting.key))))
        elif setting.sign == "+" and config.has_value(setting.key, release):
            found.append(_Rejected(setting, "present"))
        if setting.sign:
            added.append(setting.key)
    return found


def _is_own_recipe(v: View) -> bool:
    """Whether Bridge's own program runs one of Bridge's recipes: others have model and dataset classes of their own."""
    from megatron_hcp.launch.dialects.bridge.named import recipe_of
    from megatron_hcp.launch.recipes.table import is_recipe

    named = recipe_of(v.launch.reading)
    is_own = str(v.get("script") or "").rpartition("/")[2] == _RECIPE_PROGRAM
    return is_own and named is not None and is_recipe(named.name)


def _by_bridge(v: View) -> list[_Rejected]:
    from megatron_hcp.launch.dialects.known_keys import is_known

    release = _release(v, "bridge")
    if release is not None and release > _BRIDGE_READ:
        return []
    found: list[_Rejected] = []
    added: list[str] = []
    for setting in _overrides(v):
        section, _, field = setting.key.partition(".")
        is_field = "." not in field and section not in _OPEN and is_known("bridge", section)
        if setting.sign == "" and is_field and not is_known("bridge", setting.key) and setting.key not in added:
            found.append(_Rejected(setting, "missing", release is not None))
        if setting.sign:
            added.append(setting.key)
    return found


def _overrides(v: View) -> list[Setting]:
    """The launch's overrides of values, in order; a misspelled one is KEY001's."""
    from megatron_hcp.launch.dialects.known_keys import near_miss

    return [
        setting
        for setting in v.launch.reading.settings
        if setting.sign is not None
        and "." in setting.key
        and not setting.key.startswith("hydra.")
        and "/" not in setting.key
        and near_miss(v.launch.dialect, setting.key) is None
    ]


def _is_inside(key: str, added: list[str]) -> bool:
    return any(f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.") for other in added)


def _applies(v: View) -> bool:
    if v.dialect == "verl":
        return _is_own_config(v)
    return v.dialect == "bridge" and _is_own_recipe(v)


_START = (
    "python -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer critic.enable=False "
    "actor_rollout_ref.actor.use_dynamic_bsz=True"
)
_TYPE = "actor_rollout_ref.actor.megatron.override_transformer_config.cp_comm_type=a2a"


@rule(
    "KEY004",
    "error crash config",
    source=(
        VERL_MAIN_PPO.says("<module>", '@hydra.main(config_path="config", config_name="ppo_trainer"', ">=0.7.1"),
        BRIDGE_OMEGACONF.says("parse_hydra_overrides", "OmegaConf.set_struct(cfg, True)", ">=0.3"),
    ),
    applies=_applies,
    good=Example("verl", f"{_START} \\\n  +{_TYPE}\n"),
    bad=Example("verl", f"{_START} \\\n  {_TYPE}\n"),
)
def overrides_are_of_keys_that_the_configuration_has(v: View) -> Problem | None:
    """KEY=VALUE overrides a key that exists, and +KEY=VALUE adds a new one.

    verl (hydra.main) and Megatron-Bridge (parse_hydra_overrides) apply overrides in struct mode: an unknown key ends
    start-up with "Could not override", and + for a key that has a value with "Could not append". ++KEY=VALUE takes
    both; most keys below verl's override_… sections need it. Only verl's and Bridge's own programs and configurations
    are judged. It is a warning if a release that hcp hasn't read may have the key.
    """
    found = _by_verl(v) if v.dialect == "verl" else _by_bridge(v)
    if not found:
        return None
    setting, why, _ = first = next((one for one in found if one.sure), found[0])
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    is_missing = why == "missing"
    meant = _meant(setting) if v.dialect == "verl" else None
    renames = [rename for one in found if v.dialect == "verl" and (rename := _meant(one.setting))]
    return Problem(
        message="start-up fails: Hydra rejects "
        + (
            "an override of a key that the configuration doesn't have" if is_missing else "+ for a key that has a value"
        ),
        found=f"{setting.sign}{setting.key}{more}",
        wanted=f"{meant.sign}{meant.new}" if meant else "a key of the configuration",
        facts=(setting.key,),
        fixes=(Fix({}, "as Hydra takes it", tuple(renames)),) if renames else (),
        severity=None if first.sure else "warning",
        location=setting.location,
    )


def _meant(setting: Setting) -> Rename | None:
    """The key that was meant: the same one, added, or a field of the transformer in the section that takes them."""
    from megatron_hcp.launch.dialects.known_keys import is_known

    head, dot, field = setting.key.rpartition(".megatron.")
    if setting.sign or ".override_" in setting.key:
        return Rename(setting.key, setting.key, "++")
    key = f"{head}.megatron.override_transformer_config.{field}"
    return Rename(setting.key, key, "++") if dot and is_known("verl", key) else None
