"""NeMo-RL: settings of the model that its release does not read."""

from __future__ import annotations

from megatron_hcp.rules.nrl.batches import is_megatron
from megatron_hcp.rules.rule import Example, Problem, rule
from megatron_hcp.rules.upstream import NEMO_RL_SETUP
from megatron_hcp.rules.view import View

_SECTION = "policy.megatron_cfg.model_overrides."
_MEGATRON = "policy.megatron_cfg.enabled=true policy.dtensor_cfg.enabled=false"
_RING = f"{_MEGATRON} {_SECTION}cp_comm_type=a2a"


@rule(
    "NRL010",
    "error silent never",
    source=(
        NEMO_RL_SETUP.says(
            "_apply_parallelism_config",
            'model_cfg.context_parallel_size = config["megatron_cfg"]["context_parallel_size"]',
            ">=0.6",
        ),
    ),
    applies=lambda v: is_megatron(v) and any(s.key.startswith(_SECTION) for s in v.launch.reading.settings),
    good=Example("nemo-rl", _RING, "nemo_rl=0.8"),
    bad=Example("nemo-rl", _RING, "nemo_rl=0.7"),
)
def model_overrides_are_read(v: View) -> Problem | None:
    """This NeMo-RL reads policy.megatron_cfg.model_overrides.

    Through 0.7 the model gets the settings that NeMo-RL names, one by one. The section model_overrides is none of them,
    and a configuration may have any key, so it is dropped without a word: the model keeps its own values. Pull request
    #3535 reads it. The main branch still calls itself 0.6.0 there, so at 0.6 this is a warning; for such a checkout,
    state nemo_rl=0.8.
    """
    if v.at_least("nemo_rl", "0.8"):
        return None
    dropped = [setting for setting in v.launch.reading.settings if setting.key.startswith(_SECTION)]
    more = f" and {len(dropped) - 1} more" if len(dropped) > 1 else ""
    may_be_main = v.at_least("nemo_rl", "0.6") and not v.at_least("nemo_rl", "0.7")
    return Problem(
        message="NeMo-RL drops the setting without a word: the model trains with its own value",
        found=f"{dropped[0].key}{more} with NeMo-RL {v.nemo_rl}",
        wanted="NeMo-RL newer than 0.7, or the setting left out",
        facts=("nemo_rl",),
        severity="warning" if may_be_main else None,
        location=dropped[0].location,
    )
