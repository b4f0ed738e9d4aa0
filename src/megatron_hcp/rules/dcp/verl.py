"""verl's dynamic CP: what its engine doesn't support, what its CP size means, and models that share a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from megatron_hcp.launch.build import build_launch
from megatron_hcp.rules.dcp.launches import ACTOR, VERL, VERL_0_9
from megatron_hcp.rules.dcp.view import is_verl, lacks_the_switch
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import DDP, VERL_ENGINE
from megatron_hcp.rules.view import View

_EXCLUDED: tuple[tuple[str, Callable[[View], bool], Any, str], ...] = (
    ("use_remove_padding", lambda v: not v.use_remove_padding, True, "no use_remove_padding"),
    ("pad_to_length", lambda v: bool(v.pad_to_length), False, "pad_to_length"),
    ("vpp", lambda v: v.vpp not in (None, 1), None, "virtual pipeline stages"),
    ("fp8", lambda v: v.fp8 not in (None, "False", "false"), None, "FP8"),
    (
        "moe_router_fusion",
        lambda v: v.router_replay not in (None, "disabled") and bool(v.moe_router_fusion),
        False,
        "router replay and moe_router_fusion",
    ),
    (
        "distillation_loss",
        lambda v: bool(v.get("distillation")) and v.distillation_loss == "forward_kl_topk",
        "k3",
        "distillation over the teacher's top-k tokens",
    ),
    ("average_in_collective", lambda v: bool(v.get("average_in_collective")), False, "average_in_collective"),
)
"""(fact, whether it excludes dynamic CP, the value that doesn't, what to call it)"""
_REF = "actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.ref.megatron.dynamic_context_parallel"


def _some_model_says(v: View) -> bool:
    """Whether there are several models, and one of them states whether it uses dynamic CP."""
    readings = (v.launch.reading, *v.launch.reading.others)
    keys = (setting.key for reading in readings for setting in reading.settings)
    return len(readings) > 1 and any(key.endswith(".dynamic_context_parallel") for key in keys)


@rule(
    "DCP018",
    "error crash init",
    source=(
        VERL_ENGINE.says("_check_dcp_unsupported_features", "Dynamic CP does not support FP8 training", ">=0.9"),
        VERL_ENGINE.says(
            "_check_dcp_unsupported_features", "dynamic_context_parallel requires use_remove_padding=True", ">=0.9"
        ),
        DDP.says(
            "DistributedDataParallel.__init__",
            "Cannot average in collective when calculating per-token loss!",
            ">=0.12",
        ),
    ),
    applies=is_verl,
    good=Example("verl", VERL, VERL_0_9),
    bad=Example("verl", f"{VERL} {ACTOR}pad_to_length=8192", VERL_0_9),
)
def verl_settings_suit_dynamic_cp(v: View) -> Problem | None:
    """verl's dynamic CP trains a language model on packed data.

    From 0.9 on verl rejects what the scheduler and the loss don't support: padded batches, value and vision models,
    virtual pipeline stages, FP8, router replay with fused routing, top-k distillation. It forces per-token loss on, and
    megatron-core's DDP refuses to combine that with averaging in the collective.
    """
    if not v.at_least("verl", "0.9"):
        return None
    wrong = {fact: (value, said) for fact, is_wrong, value, said in _EXCLUDED if is_wrong(v)}
    found = [said for _, said in wrong.values()]
    is_value, is_vision = v.launch.reading.role == "critic", bool(v.get("vision"))
    if is_value or is_vision:
        found.append("a value model" if is_value else "a model with a vision tower")
    if not found:
        return None
    return Problem(
        message="the worker fails while building the engine",
        found=f"dynamic_context_parallel with {', '.join(found)}",
        wanted="a language model on packed data, without fixed-length padding, virtual stages, FP8, fused replay "
        "routing, top-k distillation or averaging in the collective",
        facts=tuple(wrong) or ("dynamic_context_parallel",),
        fixes=(
            Fix({"dynamic_context_parallel": False}, "static context parallelism")
            if is_value or is_vision
            else Fix({fact: value for fact, (value, _) in wrong.items()}, "what dynamic CP supports"),
        ),
    )


@rule(
    "DCP026",
    "info note never",
    source=(
        VERL_ENGINE.says(
            "MegatronEngineWithLMHead.forward_step", "dp_size=mpu.get_data_parallel_world_size()", ">=0.8,<0.9"
        ),
        VERL_ENGINE.says(
            "MegatronEngine._build_tf_config",
            '"context_parallel_size": self.engine_config.context_parallel_size',
            ">=0.8",
        ),
    ),
    applies=is_verl,
    good=Example("verl", VERL, VERL_0_9),
    bad=Example("verl", f"{VERL} {ACTOR}context_parallel_size=4", VERL_0_9),
    may_be_error=True,
)
def static_cp_size_is_1_under_verl(v: View) -> Problem | None:
    """The CP size under verl's dynamic CP means what this version takes it for.

    verl 0.8 splits a batch by the data-parallel rank, while megatron-core's groups count DP x CP ranks: the two agree
    at a static size of 1. From 0.9 on the static size shards nothing; it only counts towards DP x CP, and verl's manual
    derives max_seqlen_per_dp_cp_rank from it.
    """
    if v.cp == 1 or lacks_the_switch(v):
        return None
    old = not v.at_least("verl", "0.9")
    return Problem(
        message="batches are split by data-parallel rank but groups are counted over DP x CP: sequences reach the "
        "wrong ranks"
        if old
        else "the static size only counts towards DP x CP: each micro-batch chooses its own groups",
        found=f"dynamic_context_parallel at context_parallel_size {v.cp} with verl {v.verl}",
        wanted="context_parallel_size 1"
        if old
        else f"what you meant: max_seqlen_per_dp_cp_rank is the packed budget of a static group / {v.cp}",
        facts=("cp", "verl"),
        fixes=(Fix({"cp": 1}, "all groups are dynamic"),),
        severity="error" if old else None,
        effect="silent" if old else None,
    )


@rule(
    "DCP027",
    "error crash init",
    source=(VERL_ENGINE.says("MegatronEngine._init_device_mesh", "initialized without dynamic DPxCP groups", ">=0.9"),),
    applies=_some_model_says,
    good=Example("verl", f"{VERL} {_REF}=True", VERL_0_9),
    bad=Example("verl", f"{VERL} {_REF}=False", VERL_0_9),
)
def models_of_a_worker_agree_on_dynamic_cp(v: View) -> Problem | None:
    """All models of a worker use dynamic CP, or none does.

    Models that share a worker share megatron-core's process groups, which the first engine builds. From 0.9 on the
    reference model follows the actor unless its own key says otherwise; before, its default is off.
    """
    if lacks_the_switch(v):
        return None
    wanted = bool(v.dynamic_context_parallel)
    written = {setting.key for setting in v.launch.reading.settings}
    follows = not v.known("verl") or v.at_least("verl", "0.9")
    for reading in v.launch.reading.others:
        other = build_launch(reading, assumed=v.launch.assumed, model=v.launch.model).facts
        fact = other.get("dynamic_context_parallel")
        if fact is None:
            continue
        is_on = bool(fact.value) and (follows or f"{reading.role}.megatron.dynamic_context_parallel" in written)
        if is_on == wanted:
            continue
        names = {True: "on", False: "off"}
        return Problem(
            message="a worker with both models fails or finds no groups: the first engine builds them for all",
            found=f"dynamic_context_parallel {names[wanted]} in {v.launch.reading.role}, {names[not wanted]} in "
            f"{reading.role}",
            wanted="the same value for every model that shares a worker",
            facts=("dynamic_context_parallel",),
        )
    return None
