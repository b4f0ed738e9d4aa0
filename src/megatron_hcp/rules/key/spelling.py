"""Misspelled keys."""

from __future__ import annotations

from megatron_hcp.launch.dialects.frameworks import COMMAND_LINES, as_written
from megatron_hcp.launch.dialects.table import index_of
from megatron_hcp.launch.fact import Setting
from megatron_hcp.rules.rule import Example, Fix, Problem, Rename, rule
from megatron_hcp.rules.upstream import BRIDGE_OMEGACONF, MODEL_PARALLEL_CONFIG, VERL_MAIN_PPO
from megatron_hcp.rules.view import View


def _near_misses(v: View) -> list[tuple[Setting, str]]:
    """(setting, the key that was meant), first those that other rules read."""
    from megatron_hcp.launch.dialects.known_keys import near_miss  # imported late: it reads a large file

    index = index_of(v.dialect, v.launch.reading.role)
    found = [
        (setting, meant)
        for setting in v.launch.reading.settings
        if setting.key not in index
        and (
            v.launch.dialect in COMMAND_LINES or "." in setting.key
        )  # a section is never one word, such as `mode: pretrain`
        and (meant := near_miss(v.launch.dialect, setting.key)) is not None
    ]
    found += [(setting, setting.key) for setting in v.launch.reading.settings if _has_underscores(v, setting)]
    return sorted(found, key=lambda pair: pair[1] not in index)


def _has_underscores(v: View, setting: Setting) -> bool:
    """Whether an option of Megatron-LM's parser is written with underscores; some had them, before 0.16."""
    if v.dialect != "mlm" or setting.written is None or "opt_param" in setting.written:
        return False
    from megatron_hcp.launch.facts.known_options import all_options

    return setting.key in all_options()


_STOPS = {"mlm": "Megatron-LM", "ms-swift": "ms-swift"}
"""Whose parser rejects an unknown option; slime and miles skip it, and configuration files may add keys."""


@rule(
    "KEY001",
    "warning silent never",
    source=(
        MODEL_PARALLEL_CONFIG.says("ModelParallelConfig", "hierarchical_context_parallel_sizes", ">=0.12"),
        VERL_MAIN_PPO.says("<module>", '@hydra.main(config_path="config", config_name="ppo_trainer"', ">=0.7.1"),
        BRIDGE_OMEGACONF.says("parse_hydra_overrides", "OmegaConf.set_struct(cfg, True)", ">=0.3"),
    ),
    applies=lambda v: bool(v.launch.reading.settings),
    good=Example("mlm", "--seq-length 4096 --our-own-option 1"),
    bad=Example("mlm", "--seq-lenght 4096"),
    may_be_error=True,
)
def keys_are_spelled_correctly(v: View) -> Problem | None:
    """No key is a misspelling of a known one.

    Megatron-LM's command line rejects an unknown option, and Hydra (verl, Megatron-Bridge) an override KEY=VALUE of a
    key that the configuration doesn't have, but only after the job has waited for its nodes. A YAML file, +KEY=VALUE
    and ++KEY=VALUE may add keys: there a typo adds a new key, and the default silently stays in force. The classic is a
    singular hierarchical_context_parallel_size.
    """
    found = _near_misses(v)
    if not found:
        return None
    setting, meant = found[0]
    flags = v.launch.dialect in COMMAND_LINES
    stops = _STOPS.get(v.launch.dialect)
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    decides = meant in index_of(v.dialect, v.launch.reading.role)
    if stops:
        message = f"{stops} rejects an option that it doesn't know"
    elif setting.sign == "":
        message = "start-up fails: Hydra rejects an override of a key that the configuration doesn't have"
    else:
        message = (
            f"no upstream version knows this {'option' if flags else 'key'}, so {meant.rpartition('.')[2]} keeps its "
            "other value"
        )
    fails = bool(stops) or setting.sign == ""
    return Problem(
        message=message,
        found=f"{setting.written or as_written(v.launch, setting.key)}{more}",
        wanted=as_written(v.launch, meant),
        facts=(setting.key,),
        fixes=(Fix({}, "as upstream spells it", tuple(Rename(one.key, key, one.sign) for one, key in found)),),
        severity="error" if decides else None,
        effect="crash" if fails else None,
        stage="config" if fails else None,
        location=setting.location,
    )
