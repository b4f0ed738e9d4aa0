"""What of the phases' memory no formula counts: without it a phase that fits may still run out of memory."""

from __future__ import annotations

from collections.abc import Iterable

from megatron_hcp.launch.fact import Setting
from megatron_hcp.plan.layout import FSDP, PlanJob
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.phases.job import LOG_PROB, ROLLOUT, SYNC, UPDATE, RlJob


def unsure_of(model: PlanModel, job: PlanJob, rl: RlJob, settings: Iterable[Setting]) -> tuple[str, ...]:
    """What is not counted, in words, the phase first."""
    found = [f"all phases: {what} is not counted" for what in model.kind_unknown]
    if any(item.key == "spec" for item in settings):
        found.append("all phases: layers that --spec builds are counted like plain ones")
    if rl.lora_rank:
        found.append("all phases: LoRA's weights are counted as if every linear layer had them")
        if model.sizes.experts:
            found.append(
                f"{UPDATE}: LoRA of experts was reported to need 60 GiB more than is counted (GLM-5.2 in miles)"
            )
    if job.shards_weights:
        found.append(f"all phases: {FSDP}")
    if name := model.mixers.like_attention:
        found.append(f"{UPDATE}: the backward pass of {name} is counted like that of plain attention")
    if not job.packed and rl.tokens(LOG_PROB):
        found.append(f"{LOG_PROB} and {UPDATE}: sequences are not packed, and the masks and copies of a padded batch "
                     "are not counted")  # fmt: skip
    if rl.generates_itself:
        found.append(f"{ROLLOUT}: the KV cache and the weights with which Megatron itself generates are not counted")
    if rl.engine is not None and model.sizes.experts:
        found.append(f"{ROLLOUT} and {SYNC}: what the engine of a model with experts needs beside its share of the "
                     "memory is not counted")  # fmt: skip
    return tuple(found)
