"""Keys that verl's configuration has and that no code of a release reads with the Megatron backend."""

from __future__ import annotations

from typing import Any

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.fact import Setting
from megatron_hcp.rules.rule import Example, Problem, rule
from megatron_hcp.rules.upstream import VERL_CRITIC_CONFIG, VERL_ENGINE_WORKERS
from megatron_hcp.rules.view import View


class _Unread(NamedTuple):
    """A key's ending: the first release that doesn't read it, its value by default, and what holds instead."""

    ending: str
    since: str
    default: str
    instead: str


UNREAD = (
    _Unread(
        ".nccl_timeout", "0.8", "600", "NCCL keeps PyTorch's limit, 10 minutes, and a longer collective ends the job"
    ),
    _Unread("actor.freeze_vision_tower", "0.6", "false", "only FSDP's workers before 0.8 froze it: it is trained"),
    _Unread("actor.router_replay.mode", "0.8", "disabled", "it reads actor.megatron.router_replay.mode"),
    _Unread(".router_replay.replay_file", "0.7", "null", "nothing is replayed from a file"),
    _Unread(".router_replay.record_file", "0.7", "null", "nothing is recorded to a file"),
    _Unread("critic.forward_max_token_len_per_gpu", "0.8", "", "it reads critic.ppo_infer_max_token_len_per_gpu"),
    _Unread(".load_weight", "0.8", "true", "the weights are always loaded"),
    _Unread(".dist_checkpointing_prefix", "0.8", "", "the checkpoint is read without a prefix"),
    _Unread("model.enable_activation_offload", "0.6", "false", "only FSDP offloads activations so"),
    _Unread("model.tiled_mlp.enabled", "0.7", "false", "only FSDP computes the MLP in tiles"),
)
"""Searched in all Python files of 0.6.1, 0.7.0, 0.7.1, 0.8.0, 0.9.0 and main but those of other backends."""


_ENDINGS = tuple(row.ending for row in UNREAD)
_MEGATRON = "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=1 actor_rollout_ref.actor.use_dynamic_bsz=True"


def _is_set(setting: Setting, row: _Unread) -> bool:
    return setting.key.endswith(row.ending) and _text(setting.value) not in ("null", row.default)


def _text(value: Any) -> str:
    return "null" if value is None else str(value).lower()


def _found(v: View) -> list[tuple[Setting, _Unread]]:
    settings = v.launch.reading.settings if v.get("strategy") == "megatron" else ()
    ending = [setting for setting in settings if setting.key.endswith(_ENDINGS)]
    return [(setting, row) for setting in ending for row in UNREAD if _is_set(setting, row)]


@rule(
    "KEY005",
    "warning silent never",
    source=(
        VERL_ENGINE_WORKERS.says(
            "TrainingWorker.__init__", "initialize_global_process_group_ray(timeout_second=None)", ">=0.8"
        ),
        VERL_CRITIC_CONFIG.says("McoreCriticConfig", "nccl_timeout", ">=0.7.1"),
    ),
    applies=lambda v: bool(_found(v)),
    good=Example("verl", f"{_MEGATRON} actor_rollout_ref.nccl_timeout=7200", "verl=0.7.1"),
    bad=Example("verl", f"{_MEGATRON} actor_rollout_ref.nccl_timeout=7200", "verl=0.8.0"),
)
def verl_reads_the_keys_that_are_set(v: View) -> Problem | None:
    """The release of verl reads the keys that the launch sets.

    Its composed configuration has keys that only other backends, or workers of older releases, read. Hydra takes them,
    so nothing says that they have no effect: nccl_timeout since 0.8.0 (verl-project/verl#7815), for example.
    """
    found = [(setting, row) for setting, row in _found(v) if v.at_least("verl", row.since)]
    if not found:
        return None
    setting, row = found[0]
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return Problem(
        message=f"verl {v.verl} ignores this key: {row.instead}",
        found=f"{setting.key}={_text(setting.value)}{more}",
        wanted="no such key",
        facts=(setting.key, "verl"),
        location=setting.location,
    )
