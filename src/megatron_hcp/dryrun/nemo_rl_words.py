"""The policy of a NeMo-RL launch, as hcp's program for it gets it: its own keys, without tokenizer and checkpoint."""

from __future__ import annotations

import json

from megatron_hcp.dryrun.words import ProgramWords, Replaced
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Launch

_POLICY = "policy."
_LEFT_OUT = {
    "tokenizer": ("policy.tokenizer.",),
    "checkpoint": ("policy.pretrained_checkpoint.", "policy.megatron_cfg.force_reconvert_from_hf"),
}
_NOW = "policy.pretrained_checkpoint.format=megatron_lm"
"""With a checkpoint of Megatron-LM's NeMo-RL takes the model's sizes from its config.json, as it does at a first start,
when it makes a checkpoint of the model's own weights."""


def nemo_rl_words(launch: Launch) -> ProgramWords:
    """The values of the policy's keys, all of them evaluated.

    Raises:
        HcpError: Megatron doesn't train the policy, or not all its keys are known.
    """
    reading = launch.reading
    values = {setting.key: setting.value for setting in reading.settings if setting.key.startswith(_POLICY)}
    if values.get("policy.megatron_cfg.enabled") is not True or not values.get("policy.model_name"):
        raise HcpError("found no policy that Megatron trains", wanted="policy.megatron_cfg.enabled and a model's name")
    if reading.unseen:
        raise HcpError(f"a key of the launch is not known: {reading.unseen}", wanted="each")
    for key, why in reading.unknown.items():
        if key.startswith(_POLICY) and not _purpose(key):
            raise HcpError(f"a key of the launch is not known: {key}: {why}", wanted="each",
                           do=f"state it: -- {key}=VALUE")  # fmt: skip
    groups: dict[str, list[str]] = {what: [] for what in _LEFT_OUT}
    own = {}
    for key, value in values.items():
        if what := _purpose(key):
            groups[what].append(f"{key}={json.dumps(value)}")
        else:
            own[key.removeprefix(_POLICY)] = value
    now = {"checkpoint": (_NOW,)}
    rows = [Replaced(what, tuple(was), now.get(what, ())) for what, was in groups.items()]
    return ProgramWords((json.dumps(own),), tuple(row for row in rows if row.was or row.now))


def _purpose(key: str) -> str:
    """What a key that is left out is for; "" for one that stays."""
    return next((what for what, starts in _LEFT_OUT.items() if key.startswith(starts)), "")
