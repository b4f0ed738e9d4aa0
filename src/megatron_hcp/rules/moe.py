"""Mixture of experts: what its parallelism needs."""

from __future__ import annotations

import re

from megatron_hcp.rules.cp.view import nearest_divisors, over
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import ARGUMENTS, MOE_LAYER, TRANSFORMER_CONFIG
from megatron_hcp.rules.view import View

_EP = "--expert-model-parallel-size"
_OVERLAP = (
    "--overlap-moe-expert-parallel-comm --bf16 --moe-token-dispatcher-type alltoall --num-experts 8 "
    "--disable-bias-linear"
)
_SHARED = "--num-experts 8 --disable-bias-linear --moe-shared-expert-intermediate-size 512 --moe-shared-expert-overlap"

_EVALUATING = r"generat|inference|^(mmlu|validate|offline_feature_extract)\.py$"
"""Programs of Megatron-LM that switch the model to evaluation before its first forward pass."""


def _splits_experts(v: View) -> bool:
    """Whether expert parallelism is on. Requests no fact."""
    return (v.get("ep") or 1) > 1


def _only_infers(v: View) -> bool:
    """Whether Megatron-LM's program or options show that nothing is trained; only train_rl.py infers between steps."""
    keys = [setting.key for setting in v.launch.reading.settings]
    evaluates = any(key.startswith("inference_") or key == "skip_train" for key in keys)
    program = str(v.get("script") or "").rpartition("/")[2]
    return "perform_rl_step" not in keys and (evaluates or re.search(_EVALUATING, program) is not None)


@rule(
    "MOE001",
    "error crash config",
    source=(
        ARGUMENTS.says("validate_args", "num_experts must be non None to use expert model parallelism", ">=0.12"),
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__", "num_moe_experts must be non None to use expert-parallel", ">=0.12"
        ),
    ),
    applies=_splits_experts,
    good=Example("mlm", f"{_EP} 4 --num-experts 8 --disable-bias-linear"),
    bad=Example("mlm", f"{_EP} 4"),
    recipe_settled=True,
)
def expert_parallelism_has_experts(v: View) -> Problem | None:
    """Expert parallelism is used only with experts.

    megatron-core's config constructor rejects it for a dense model.
    """
    if v.num_experts:
        return None
    return Problem(
        message="the model has no experts, and the config constructor fails",
        found=f"expert_model_parallel_size {v.ep} for a dense model",
        wanted="experts, or expert_model_parallel_size 1",
        facts=("ep", "num_experts"),
        fixes=(Fix({"ep": 1}, over("expert", 1)),),
    )


@rule(
    "MOE002",
    "error crash init",
    source=(
        ARGUMENTS.says(
            "validate_args", "Number of experts should be a multiple of expert model parallel_size.", ">=0.12"
        ),
        MOE_LAYER.says("BaseMoELayer.__init__", "self.config.num_moe_experts % ep_size == 0", ">=0.13"),
    ),
    applies=lambda v: _splits_experts(v) and bool(v.num_experts),
    good=Example("mlm", f"{_EP} 4 --num-experts 8 --disable-bias-linear"),
    bad=Example("mlm", f"{_EP} 4 --num-experts 6 --disable-bias-linear"),
    recipe_settled=True,
)
def ranks_hold_whole_experts(v: View) -> Problem | None:
    """The number of experts is divisible by the expert-parallel size.

    megatron-core asserts this when building an MoE layer.
    """
    if v.num_experts % v.ep == 0:
        return None
    ranks, others = v.get("world_size"), (v.get("etp") or 1) * (v.get("pp") or 1)
    sizes = nearest_divisors(v.num_experts, v.ep, lambda size: ranks is None or ranks % (size * others) == 0)
    return Problem(
        message="start-up fails: the experts cannot be split evenly over the expert-parallel ranks",
        found=f"{v.num_experts} experts over {v.ep} ranks",
        wanted=f"an expert_model_parallel_size that divides {v.num_experts}",
        facts=("ep", "num_experts"),
        fixes=tuple(Fix({"ep": size}, over("expert", size)) for size in sizes),
        stage="config" if v.dialect == "mlm" else "init",
    )


@rule(
    "MOE003",
    "error crash first-forward",
    source=(MOE_LAYER.says("MoELayer.forward", "are enabled without also enabling sequence parallelism.", ">=0.12"),),
    applies=lambda v: (v.get("tp") or 1) > 1 and bool(v.get("num_experts")) and not _only_infers(v),
    good=Example("mlm", "--num-experts 8 --disable-bias-linear --tensor-model-parallel-size 2 --sequence-parallel"),
    bad=Example("mlm", "--num-experts 8 --disable-bias-linear --tensor-model-parallel-size 2"),
    recipe_settled=True,
)
def experts_under_tp_have_sequence_parallelism(v: View) -> Problem | None:
    """Training experts with tensor parallelism uses sequence parallelism.

    megatron-core's error message mentions performance, but training does fail.
    """
    if v.sequence_parallel:
        return None
    return Problem(
        message="in training every MoE layer fails: it requires sequence parallelism together with tensor parallelism",
        found=f"{v.num_experts} experts at tensor_model_parallel_size {v.tp} without sequence_parallel",
        wanted="sequence_parallel",
        facts=("sequence_parallel", "tp", "num_experts"),
        fixes=(Fix({"sequence_parallel": True}, "activations split over the tensor-parallel ranks"),),
    )


@rule(
    "MOE004",
    "error crash config",
    source=(
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__", "is only supported with expert model parallelism", ">=0.14"
        ),
        TRANSFORMER_CONFIG.says("TransformerConfig.__post_init__", "is supported with alltoall/flex", ">=0.14"),
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__", "must be specified when pipeline_model_parallel_size > 1", ">=0.14"
        ),
    ),
    applies=lambda v: bool(v.get("overlap_moe_expert_parallel_comm")),
    good=Example("mlm", f"{_OVERLAP} {_EP} 4"),
    bad=Example("mlm", _OVERLAP),
    recipe_settled=True,
)
def expert_overlap_has_its_parallelism(v: View) -> Problem | None:
    """The expert-communication overlap has the settings that it requires.

    overlap_moe_expert_parallel_comm interleaves two micro-batches around an all-to-all: it needs expert parallelism, a
    dispatcher with an all-to-all, and virtual stages if there is a pipeline.
    """
    if v.ep == 1:
        wrong, wanted, guilty = "expert_model_parallel_size 1", "more expert-parallel ranks", "ep"
    elif v.moe_token_dispatcher_type not in ("alltoall", "flex"):
        wrong, guilty = f"moe_token_dispatcher_type {v.moe_token_dispatcher_type}", "moe_token_dispatcher_type"
        wanted = "the alltoall or the flex dispatcher"
    elif v.pp > 1 and not v.pipeline_layout and v.vpp is None:
        wrong, wanted, guilty = f"{v.pp} pipeline stages without virtual ones", "virtual stages, or no pipeline", "vpp"
    else:
        return None
    fixes = (Fix({"moe_token_dispatcher_type": "alltoall"}, "the all-to-all"),) if guilty.startswith("moe_") else ()
    return Problem(
        message="the overlap has nothing to interleave: the config constructor fails",
        found=f"overlap_moe_expert_parallel_comm with {wrong}",
        wanted=wanted,
        facts=("overlap_moe_expert_parallel_comm", guilty),
        fixes=(*fixes, Fix({"overlap_moe_expert_parallel_comm": False}, "no overlap")),
    )


@rule(
    "MOE005",
    "error crash config",
    source=(
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__", "moe_shared_expert_overlap only works with alltoall", ">=0.12"
        ),
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__", "moe_shared_expert_overlap only works with alltoall or flex", ">=0.18"
        ),
    ),
    applies=lambda v: bool(v.get("moe_shared_expert_overlap")),
    good=Example("mlm", f"{_SHARED} --moe-token-dispatcher-type alltoall"),
    bad=Example("mlm", f"{_SHARED} --moe-token-dispatcher-type allgather"),
    recipe_settled=True,
)
def shared_experts_overlap_an_all_to_all(v: View) -> Problem | None:
    """Shared experts overlap only with the alltoall or flex dispatcher.

    moe_shared_expert_overlap runs the shared experts during the dispatcher's all-to-all, which allgather (Megatron-LM's
    default) doesn't have. Before 0.18 megatron-core's config constructor accepts alltoall only. Without shared experts
    it ignores the option.
    """
    if v.moe_shared_expert_intermediate_size is None or v.moe_token_dispatcher_type == "alltoall":
        return None
    if v.moe_token_dispatcher_type == "flex" and v.at_least("mcore", "0.18"):
        return None
    return Problem(
        message="the config constructor fails: the shared experts can't overlap with this dispatcher's communication",
        found=f"moe_shared_expert_overlap with moe_token_dispatcher_type {v.moe_token_dispatcher_type}",
        wanted="the alltoall dispatcher, or flex from megatron-core 0.18 on",
        facts=("moe_shared_expert_overlap", "moe_token_dispatcher_type", "moe_shared_expert_intermediate_size"),
        fixes=(
            Fix({"moe_token_dispatcher_type": "alltoall"}, "the all-to-all"),
            Fix({"moe_shared_expert_overlap": False}, "no overlap"),
        ),
    )


@rule(
    "MOE006",
    "error crash config",
    source=(
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__",
            "disable full recomputation when enabling overlap_moe",
            ">=0.14",
            branches=("main",),
        ),
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__", "disable moe_shared_expert_overlap when enabling overlap_moe", ">=0.14"
        ),
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__", "disable moe in recompute_modules when enabling overlap_moe", ">=0.17"
        ),
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__", "MTP layernum only supports 1 when enabling overlap_moe", ">=0.14,<0.19"
        ),
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__",
            "MTP supports at most one layer when enabling overlap_moe",
            ">=0.19",
            branches=("main",),
        ),
    ),
    applies=lambda v: bool(v.get("overlap_moe_expert_parallel_comm")),
    good=Example("mlm", f"{_OVERLAP} {_EP} 4 --recompute-granularity selective --recompute-modules core_attn"),
    bad=Example("mlm", f"{_OVERLAP} {_EP} 4 --recompute-granularity selective --recompute-modules moe", "mcore=0.17"),
    recipe_settled=True,
)
def expert_overlap_computes_layers_once(v: View) -> Problem | None:
    """Expert-communication overlap excludes what needs an MoE layer as a whole.

    overlap_moe_expert_parallel_comm schedules the parts of a layer one by one, so it excludes full recomputation, from
    0.17 on the module moe in recompute_modules, the overlap of shared experts, and more than one layer of multi-token
    prediction. The dev branch accepts full recomputation.
    """
    fixes: tuple[Fix, ...] = ()
    recomputes_experts = v.known("recompute_modules", "mcore") and "moe" in _words(v.recompute_modules)
    if v.recompute_granularity == "full" and v.get("mcore_branch") != "dev":
        wrong, guilty = "recompute_granularity full", "recompute_granularity"
    elif recomputes_experts and v.at_least("mcore", "0.17"):
        wrong, guilty = "recompute_modules moe", "recompute_modules"
    elif v.moe_shared_expert_overlap:
        wrong = guilty = "moe_shared_expert_overlap"
        fixes = (Fix({guilty: False}, "no overlap of shared experts"),)
    elif (v.mtp_layers or 0) > 1:
        wrong, guilty = f"mtp_num_layers {v.mtp_layers}", "mtp_layers"
        fixes = (Fix({guilty: 1}, "one layer of multi-token prediction"),)
    elif "moe" in _words(v.recompute_modules) and v.at_least("mcore", "0.17"):
        wrong, guilty = "recompute_modules moe", "recompute_modules"
    else:
        return None
    return Problem(
        message="the config constructor rejects this beside the overlap of expert communication: the launch fails",
        found=f"overlap_moe_expert_parallel_comm with {wrong}",
        wanted=f"no {wrong}, or no overlap",
        facts=("overlap_moe_expert_parallel_comm", guilty),
        fixes=(*fixes, Fix({"overlap_moe_expert_parallel_comm": False}, "no overlap")),
    )


def _words(modules: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (modules,) if isinstance(modules, str) else modules or ()
