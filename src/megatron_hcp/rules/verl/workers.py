"""verl's workers: models that share a worker share megatron-core's process groups."""

from __future__ import annotations

from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Reading
from megatron_hcp.rules.rule import Example, Problem, rule
from megatron_hcp.rules.upstream import EXTENSION_TE, VERL_ENGINE, VERL_ENGINE_WORKERS
from megatron_hcp.rules.view import View

_ACTOR, _REF = "actor_rollout_ref.actor", "actor_rollout_ref.ref"
_WITH_REF = (
    f"{_ACTOR}.strategy=megatron {_ACTOR}.use_dynamic_bsz=True {_ACTOR}.use_kl_loss=True critic.enable=False "
    f"{_ACTOR}.megatron.context_parallel_size="
)
_OWN_SIZE = f"{_REF}.megatron.context_parallel_size"


def _reference_model(v: View) -> Reading | None:
    """The launch's reference model, if its context-parallel size, or the actor's that it follows, is written."""
    for other in v.launch.reading.others:
        if other.role == _REF and any(setting.key == _OWN_SIZE for setting in other.settings):
            return other
    return None


@rule(
    "VERL006",
    "error silent never",
    source=(
        VERL_ENGINE.says("MegatronEngine._init_device_mesh", "if mpu.is_initialized():", ">=0.8"),
        VERL_ENGINE_WORKERS.says("ActorRolloutRefWorker.init_model", "# 1. build reference model", ">=0.8"),
        EXTENSION_TE.says("TEDotProductAttention.__init__", "if self.config.context_parallel_size > 1:", ">=0.12"),
    ),
    applies=lambda v: _reference_model(v) is not None,
    good=Example("verl", f"{_WITH_REF}2", "verl=0.9.1"),
    bad=Example("verl", f"{_WITH_REF}1 {_OWN_SIZE}=2", "verl=0.9.1"),
)
def actor_and_reference_model_have_one_cp_size(v: View) -> Problem | None:
    """The actor and its reference model have the same context-parallel size.

    They share a worker and megatron-core's groups, which the reference model builds: it is initialized first, and
    existing groups are reused. Sequences are split by the groups; an actor whose own configuration says 1 passes its
    attention no group, so each rank attends only to its own part. Any other pair of sizes runs at the reference model's
    size.
    """
    reference = _reference_model(v)
    assert reference is not None  # the rule applies
    if not v.at_least("verl", "0.8"):
        return None
    size = build_launch(reference, assumed=v.launch.assumed, model=v.launch.model).facts.get("cp")
    if size is None or size.value == v.cp:
        return None
    # The legacy mbridge, formerly the default, copies the groups' size into the configuration.
    is_legacy = v.vanilla_mbridge
    if is_legacy is None:
        is_legacy = not v.at_least("verl", "0.9")
    is_local = v.cp == 1 and not is_legacy
    message = (
        f"the actor runs at context-parallel size {size.value}, the reference model's: budgets and memory were "
        f"planned for another size"
    )
    if is_local:
        message = "the actor's attention stays within each rank's part of the sequence: it silently trains wrongly"
    return Problem(
        message=message,
        found=f"context_parallel_size {v.cp} of the actor and {size.value} of the reference model, which builds the "
        "groups of both",
        wanted=f"omit {_OWN_SIZE}: it then follows the actor's",
        facts=("cp", "verl"),
        severity=None if is_local else "warning",
    )
