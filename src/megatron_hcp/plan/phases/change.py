"""Which phase of a step fails first, and the one setting after which all of them fit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.memory.peak import usable_gib
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.phases.job import ALL, GRADIENTS, OPTIMIZER, ROLLOUT, UPDATE, WEIGHTS, RlJob
from megatron_hcp.plan.phases.logits import is_before
from megatron_hcp.plan.phases.memory import Phase, phases_of

_MAIN_WEIGHT = 4
"""Bytes of a parameter's fp32 weight; the rest of the optimizer's state are moments."""
_LEAST_SHARE = 0.2
_CHUNK = 1024
_O, _A = "+actor_rollout_ref.actor.megatron.override_transformer_config.", "actor_rollout_ref.actor."
_P = f"{_A}optim.override_optimizer_config."
_INFERRED = " ".join(f"actor_rollout_ref.{role}.log_prob_max_token_len_per_gpu={{0}}" for role in ("rollout", "ref"))
_COUNTED = " ".join(f"actor_rollout_ref.{role}.log_prob_micro_batch_size_per_gpu={{0}}" for role in ("rollout", "ref"))
_WRITTEN: Mapping[str, Mapping[str, str]] = {
    "verl": {
        "share": "actor_rollout_ref.rollout.gpu_memory_utilization={}",
        "logits": "actor_rollout_ref.model.use_fused_kernels=True",
        "log-probability tokens": _INFERRED,
        "log-probability sequences": _COUNTED,
        "reference": "actor_rollout_ref.ref.megatron.param_offload=True",
        "weights": f"{_A}megatron.param_offload=True actor_rollout_ref.ref.megatron.param_offload=True",
        "optimizer": f"{_A}megatron.optimizer_offload=True",
        "recompute": f"{_O}recompute_granularity=full {_O}recompute_method=uniform {_O}recompute_num_layers=1",
        "tokens": f"{_A}ppo_max_token_len_per_gpu={{0}} {_INFERRED}",
        "sequences": f"{_A}ppo_micro_batch_size_per_gpu={{0}} {_COUNTED}",
        "host optimizer": f"+{_P}optimizer_cpu_offload=True +{_P}optimizer_offload_fraction=1.0 "
        f"+{_P}use_precision_aware_optimizer=True",
    },
    "nemo-rl": {
        "share": "policy.generation.vllm_cfg.gpu_memory_utilization={}",
        "SGLang's share": "policy.generation.sglang_cfg.mem_fraction_static={}",
        "logits": f"policy.logprob_chunk_size={_CHUNK} policy.megatron_cfg.defer_fp32_logits=true",
        "log-probability sequences": "policy.logprob_batch_size={}",
        "recompute": "policy.megatron_cfg.activation_checkpointing=true",
        "host optimizer": "policy.megatron_cfg.optimizer.optimizer_cpu_offload=true "
        "policy.megatron_cfg.optimizer.optimizer_offload_fraction=1.0",
    },
    "slime": {
        "share": "--sglang-mem-fraction-static {}",
        "log-probability tokens": "--log-probs-max-tokens-per-gpu {}",
        "all": "--offload-train",
        "recompute": "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
        "tokens": "--max-tokens-per-gpu {0} --log-probs-max-tokens-per-gpu {0}",
        "sequences": "--micro-batch-size {0}",
        "host optimizer": "--optimizer-cpu-offload --use-precision-aware-optimizer",
    },
    "ms-swift": {
        "share": "--vllm_gpu_memory_utilization {}",
        "weights": "--offload_model true",
        "optimizer": "--offload_optimizer true",
        "recompute": "--recompute_granularity full --recompute_method uniform --recompute_num_layers 1",
        "sequences": "--micro_batch_size {0}",
        "host optimizer": "--optimizer_cpu_offload true --use_precision_aware_optimizer true",
    },
}  # fmt: skip
"""How each framework writes a change, with every key that would keep it from being made; what it lacks is not
offered."""


class FirstFailure(NamedTuple):
    """The first phase that fails. `setting`: what makes every phase fit, as the launch writes it; "" if none does."""

    phase: Phase
    setting: str


class Mended(NamedTuple):
    """A change of one setting, as the launch writes it, and what it makes of the layout, the job and the phases."""

    setting: str
    layout: Layout
    job: PlanJob
    rl: RlJob


def first_failure(
    model: PlanModel, layout: Layout, job: PlanJob, rl: RlJob, phases: Sequence[Phase]
) -> FirstFailure | None:  # fmt: skip
    """Which phase fails first, and what mends it; None where all fit, or FSDP leaves open whether they do."""
    failing = _first(phases, job)
    if failing is None or failing.is_open:
        return None
    for change in changes_of(layout, job, rl, failing):
        if all(item.fits for item in phases_of(model, change.layout, change.job, change.rl)):
            return FirstFailure(failing, change.setting)
    return FirstFailure(failing, "")


def changes_of(layout: Layout, job: PlanJob, rl: RlJob, failing: Phase) -> Iterator[Mended]:
    """The changes of one setting that the framework has, what costs least time first."""
    written = _WRITTEN[rl.framework]
    for item in _changes(layout, job, rl, failing):
        if item.name in written:
            setting = written[item.name].format(item.value)
            if rl.framework == "slime" and is_before(rl.release, "0.2"):
                setting = setting.replace("--offload-train", "--offload")
            yield Mended(setting, item.layout, item.job, item.rl)


def _first(phases: Sequence[Phase], job: PlanJob) -> Phase | None:
    """The first in time: the optimizer's moments come with the first update, so that it fails before what they fill."""
    moments = max(0, job.optimizer_bytes - _MAIN_WEIGHT) / job.optimizer_bytes if job.optimizer_bytes else 0.0
    for item in phases:
        later = 0.0 if item.name == UPDATE else moments * item.terms.get(OPTIMIZER, 0.0)
        if item.lacks or item.peak - later > item.usable:
            return item
    return next((item for item in phases if not item.fits), None)


class _Named(NamedTuple):
    name: str
    value: object
    layout: Layout
    job: PlanJob
    rl: RlJob


def _changes(layout: Layout, job: PlanJob, rl: RlJob, failing: Phase) -> Iterator[_Named]:
    def of(name: str, other: RlJob, value: object = "") -> _Named:
        return _Named(name, value, layout, job, other)

    if rl.engine is not None and failing.name == ROLLOUT:
        part = failing.over / usable_gib(job.gpu)
        share = (
            math.ceil((rl.engine.share + part) * 20) / 20 if failing.lacks else int((rl.engine.share - part) * 20) / 20
        )
        name = "SGLang's share" if (rl.framework, rl.engine.name) == ("nemo-rl", "sglang") else "share"
        if share >= _LEAST_SHARE:
            yield of(name, rl._replace(engine=rl.engine._replace(share=share)), f"{share:.2f}")
    chunked = rl.logits._replace(chunk=_CHUNK, deferred=True)
    logits = chunked if rl.framework == "nemo-rl" else rl.logits._replace(fused=True)
    yield of("logits", rl._replace(logits=logits))
    if rl.log_prob_tokens > rl.update_tokens or rl.framework == "nemo-rl":
        most = rl.least_tokens if rl.framework == "nemo-rl" else rl.update_tokens
        yield of(f"log-probability {rl.counted}", _inferring(rl, most), _as_counted(rl, most))
    yield of("reference", rl._replace(keeps_reference=False))
    keeps = rl.keeps_reference and rl.framework != "verl"  # which is told to move the reference's as well
    yield of("weights", rl._replace(offloads=rl.offloads | {WEIGHTS, GRADIENTS}, keeps_reference=keeps))
    yield of("optimizer", rl._replace(offloads=rl.offloads | {OPTIMIZER}))
    if rl.engine is not None:
        yield of("all", rl._replace(offloads=ALL))
    yield _Named("recompute", "", replace(layout, recompute="full"), job, rl)
    least = rl.least_tokens
    if rl.update_tokens > least:
        yield of(rl.counted, _inferring(rl, least)._replace(update_tokens=least), _as_counted(rl, least))
    yield _Named("host optimizer", "", layout, replace(job, optimizer_bytes=0), rl)


def _as_counted(rl: RlJob, tokens: int) -> int:
    """So many tokens as the launch counts them."""
    return tokens // rl.least_tokens if rl.counted == "sequences" else tokens


def _inferring(rl: RlJob, tokens: int) -> RlJob:
    """With so many tokens where log-probabilities alone are computed."""
    return rl._replace(log_prob_tokens=tokens, reference_tokens=tokens if rl.reference_tokens else 0)
