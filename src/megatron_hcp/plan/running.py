"""How a job runs beside its layout, as memory and time take it for granted, in the words of each framework.

What a framework does by itself is left out. Sources: validate_args and transformer_config.py of Megatron-LM;
comm_overlap.py, mixed_precision.py and flex_dispatcher_backend.py of Megatron-Bridge; transformer_impl.py of verl;
setup.py of NeMo-RL. verl and NeMo-RL overlap neither TP's collectives nor EP's exchange, and compute their own loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from megatron_hcp.core.releases import MCORE_FLEX_BACKEND, at_least
from megatron_hcp.plan.constants import rates_for
from megatron_hcp.plan.layout import Layout, PlanJob, overlaps_exchange
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.plan.time.links import fits_inside
from megatron_hcp.plan.time.step import step_time

DEEPEP_GPUS = ("a100", "h100", "h200", "h20", "h800")
"""GPUs on which tokens are exchanged by DeepEP; on others HybridEP does it."""


class Spelling(NamedTuple):
    """A setting in the words of each framework; empty where it is the default there, or the framework has none.

    `@` stands for the framework's section, see `_SECTIONS`.
    """

    mlm: str = ""
    bridge: str = ""
    verl: str = ""
    nemo_rl: str = ""


_SECTIONS = {"bridge": "comm_overlap", "verl": "actor_rollout_ref.actor.megatron", "nemo-rl": "policy.megatron_cfg"}
"""What `@` stands for."""
_PRECISIONS: Mapping[str, Spelling] = {
    "bf16": Spelling("--bf16", "mixed_precision=bf16_mixed"),
    "fp8": Spelling(
        "--bf16 --fp8-format hybrid --fp8-recipe tensorwise --fp8-param-gather",
        "mixed_precision=bf16_with_fp8_current_scaling_mixed",
        "++@.override_transformer_config.fp8=hybrid ++@.override_transformer_config.fp8_recipe=tensorwise",
        "++@.fp8_cfg.enabled=true ++@.fp8_cfg.fp8=hybrid ++@.fp8_cfg.fp8_recipe=tensorwise ++@.fp8_cfg.fp8_param=true",
    ),
    "mxfp8": Spelling(
        "--bf16 --fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather --reuse-grad-buf-for-mxfp8-param-ag",
        "mixed_precision=bf16_with_mxfp8_mixed",
        "++@.override_transformer_config.fp8=e4m3 ++@.override_transformer_config.fp8_recipe=mxfp8",
        "++@.fp8_cfg.enabled=true ++@.fp8_cfg.fp8=e4m3 ++@.fp8_cfg.fp8_recipe=mxfp8 ++@.fp8_cfg.fp8_param=true",
    ),
    "nvfp4": Spelling(
        "--bf16 --fp4-format e2m1 --fp4-recipe nvfp4 --fp4-param-gather",
        "mixed_precision=bf16_with_nvfp4_mixed",
        "++@.override_transformer_config.fp4=e2m1 ++@.override_transformer_config.fp4_recipe=nvfp4",
        "++@.model_overrides.fp4=e2m1 ++@.model_overrides.fp4_recipe=nvfp4",
    ),
}
_SHARDED = Spelling("--use-distributed-optimizer", nemo_rl="@.optimizer.use_distributed_optimizer=true")
_FP32_GRADIENTS = Spelling(nemo_rl="@.distributed_data_parallel_config.grad_reduce_in_fp32=true")
_DP_OVERLAP = Spelling(
    "--overlap-grad-reduce --overlap-param-gather", verl="++@.override_ddp_config.overlap_grad_reduce=true"
)
_TE_LOSS = Spelling(
    "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te",
    "model.cross_entropy_loss_fusion=true model.cross_entropy_fusion_impl=te",
)
_GROUPED = Spelling("--moe-grouped-gemm", "model.moe_grouped_gemm=true")
_ALL_TO_ALL = Spelling(
    "--moe-token-dispatcher-type alltoall", "model.moe_token_dispatcher_type=alltoall",
    "++@.override_transformer_config.moe_token_dispatcher_type=alltoall", "@.moe_token_dispatcher_type=alltoall",
)  # fmt: skip
_FLEX = Spelling(
    "--moe-token-dispatcher-type flex --moe-router-dtype fp32",
    "model.moe_token_dispatcher_type=flex model.moe_router_dtype=fp32",
    "++@.override_transformer_config.moe_token_dispatcher_type=flex "
    "++@.override_transformer_config.moe_router_dtype=fp32",
    "@.moe_token_dispatcher_type=flex @.moe_router_dtype=fp32",
)
_BACKEND = Spelling(
    "--moe-flex-dispatcher-backend {0}", "model.moe_flex_dispatcher_backend={0}",
    "++@.override_transformer_config.moe_flex_dispatcher_backend={0}", "++@.moe_flex_dispatcher_backend={0}",
)  # fmt: skip
_DEEPEP = Spelling(
    "--moe-enable-deepep", "model.moe_enable_deepep=true", "++@.override_transformer_config.moe_enable_deepep=true",
    "@.moe_enable_deepep=true",
)  # fmt: skip
_EP_OVERLAP = Spelling(
    "--overlap-moe-expert-parallel-comm --delay-wgrad-compute",
    "++@.overlap_moe_expert_parallel_comm=true ++@.delay_wgrad_compute=true",
)
_EP_APART = Spelling(bridge="++@.overlap_moe_expert_parallel_comm=false")
_SHARED_ALONE = Spelling(bridge="model.moe_shared_expert_overlap=false")
_TP_OVERLAP = Spelling("--tp-comm-overlap")
_OVERLAPS = Spelling(
    bridge="++@._target_=megatron.bridge.training.comm_overlap.CommOverlapConfig ++@.tp_comm_overlap={0}"
)
"""Recipes may have no such section, or one: with its class it is made where it is missing."""


WITHOUT_OVERLAPS = ("verl", "nemo-rl")
"""Frameworks whose own loops start neither Transformer Engine's userbuffers nor a schedule that overlaps EP."""


def as_run_by(dialect: str, job: PlanJob) -> PlanJob:
    """The job as that framework can run it."""
    return replace(job, overlaps_ep=False, overlaps_tp=False) if dialect in WITHOUT_OVERLAPS else job


def running(model: PlanModel, layout: Layout, job: PlanJob, dialect: str) -> list[str]:
    """The words of that dialect that make a job run as its memory and time are counted."""
    section = _SECTIONS.get(dialect, "")
    texts = (getattr(words, dialect.replace("-", "_")) for words in _held(model, layout, job))
    return [word.replace("@", section) for text in texts for word in text.split()]


def _held(model: PlanModel, layout: Layout, job: PlanJob) -> list[Spelling]:
    """What holds for that layout, in order of writing."""
    found = []
    if job.fp32_gradients:  # else the launch has a precision of its own, which a name would replace
        found += [_PRECISIONS[job.precision], _FP32_GRADIENTS]
    if job.sharded_optimizer:
        found.append(_SHARDED)
        if layout.cp * job.dp(layout) > 1:
            found.append(_DP_OVERLAP)
    if job.loss_in_place:
        found.append(_TE_LOSS)
    tp = job.has_userbuffers and layout.tp > 1 and fits_inside(layout.tp, 1, job.domain)
    ep = _overlaps_ep(model, layout, job)
    if tp:
        found.append(_TP_OVERLAP)
    off = job.overlaps_ep is False and layout.ep > 1
    if tp or ep or off:
        found.append(_filled(_OVERLAPS, str(tp).lower()))
    if off:
        found.append(_EP_APART)
    if ep:
        found += [_EP_OVERLAP, _SHARED_ALONE] if model.sizes.shared_ffn else [_EP_OVERLAP]
    return found + (list(_exchange(job, layout)) if model.sizes.experts else [])


def _overlaps_ep(model: PlanModel, layout: Layout, job: PlanJob) -> bool:
    """Whether EP's exchange is counted as overlapped: as said, else where that is faster."""
    if layout.ep == 1 or not any(model.is_moe) or not overlaps_exchange(model, layout):
        return False
    rates = rates_for(job)
    if len(rates.exchanges) == 1:
        return rates.exchanges != rates.apart.exchanges
    return step_time(model, layout, job, rates).seconds < step_time(model, layout, job, rates.apart).seconds


def _exchange(job: PlanJob, layout: Layout) -> list[Spelling]:
    """How tokens reach their experts."""
    if layout.ep == 1:
        return [_GROUPED]
    if job.sends_once is False:
        return [_GROUPED, _ALL_TO_ALL]
    mcore = job.versions.get("mcore")
    if mcore is not None and not at_least(mcore, MCORE_FLEX_BACKEND):
        return [_GROUPED, _FLEX, _DEEPEP]
    return [_GROUPED, _FLEX, _filled(_BACKEND, "deepep" if job.gpu.name in DEEPEP_GPUS else "hybridep")]


def _filled(words: Spelling, value: str) -> Spelling:
    return Spelling(*(text.format(value) for text in words))
