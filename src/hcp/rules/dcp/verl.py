"""Dynamic context parallelism in verl: what its engine refuses, ignores and gets wrong, version by version."""

from __future__ import annotations

from typing import Any

from hcp.launch.build import build_launch
from hcp.rules.dcp.view import (
    ACTOR,
    DEV,
    VERL,
    is_verl,
    num_ranks,
)
from hcp.rules.rule import Example, Fix, Problem, rule
from hcp.rules.upstream import (
    DDP,
    VERL_ENGINE,
    VERL_MEGATRON_UTILS,
)
from hcp.rules.view import View

_IGNORED = ("ppo_max_token_len_per_gpu", "use_dynamic_bsz", "micro_batch_size")


def _splits_evenly(num_sequences: int, ranks: int) -> bool:
    """Whether 0.8's split of a micro-batch leaves no rank empty, whatever power of two of ranks it chooses."""
    sizes = [2**k for k in range(ranks.bit_length()) if 2**k <= ranks]
    return all((parts - 1) * -(-num_sequences // parts) < num_sequences for parts in sizes)


def _is_written(v: View) -> bool:
    """Whether some model of several says whether it has dynamic CP."""
    readings = (v.launch.reading, *v.launch.reading.others)
    return (
        v.dialect == "verl"
        and len(readings) > 1
        and any(
            setting.key.endswith(".dynamic_context_parallel") for reading in readings for setting in reading.settings
        )
    )


_OLD = "verl=0.8.0 mcore=0.19.0 mcore_branch=dev"


_REF = "actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.ref.megatron.dynamic_context_parallel"


@rule(
    "DCP018",
    severity="error",
    effect="crash",
    stage="init",
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
    good=Example("verl", VERL, DEV),
    bad=Example("verl", VERL + f" {ACTOR}pad_to_length=8192", DEV),
)
def verl_has_what_dynamic_cp_needs(v: View) -> Problem | None:
    """verl's dynamic CP trains a language model on packed data, without what it excludes.

    From 0.9 on verl refuses what the scheduler and the loss cannot do: padded batches, value and vision models,
    virtual pipeline stages, FP8, router replay with fused routing, top-k distillation. Per-token loss is forced on,
    and megatron-core's DDP refuses to average in the collective with it.
    """
    if not v.at_least("verl", "0.9"):
        return None
    wrong: list[str] = []
    edits: dict[str, Any] = {}
    if not v.use_remove_padding:
        wrong.append("use_remove_padding")
        edits["use_remove_padding"] = True
    if v.pad_to_length:
        wrong.append("pad_to_length")
        edits["pad_to_length"] = False
    if v.vpp not in (None, 1):
        wrong.append("vpp")
        edits["vpp"] = None
    if v.fp8 not in (None, False, "False", "false"):
        wrong.append("fp8")
        edits["fp8"] = None
    if v.router_replay not in (None, "disabled") and v.moe_router_fusion:
        wrong.append("moe_router_fusion")
        edits["moe_router_fusion"] = False
    if v.get("distillation") and v.distillation_loss == "forward_kl_topk":
        wrong.append("distillation_loss")
        edits["distillation_loss"] = "k3"
    if v.get("average_in_collective"):
        wrong.append("average_in_collective")
        edits["average_in_collective"] = False
    names = {
        "use_remove_padding": "no use_remove_padding",
        "vpp": "virtual pipeline stages",
        "fp8": "FP8",
        "moe_router_fusion": "router replay and moe_router_fusion",
        "distillation_loss": "distillation over the teacher's top-k tokens",
    }
    found = [names.get(name, name) for name in wrong]
    is_value, is_vision = v.launch.reading.role == "critic", bool(v.get("vision"))
    if is_value or is_vision:
        found.append("a value model" if is_value else "a model with a vision tower")
    if not found:
        return None
    return Problem(
        message="the worker stops where it builds the engine",
        found=f"dynamic_context_parallel with {', '.join(found)}",
        wanted="packed data, a language model, and neither padding to a length, virtual stages, FP8, fused routing "
        "under replay, top-k distillation nor an average in the collective",
        facts=tuple(wrong) if wrong else ("dynamic_context_parallel",),
        fixes=(
            Fix(
                {"dynamic_context_parallel": False} if is_value or is_vision else edits,
                "static context parallelism" if is_value or is_vision else "what dynamic CP allows",
            ),
        ),
    )


@rule(
    "DCP023",
    severity="info",
    effect="note",
    stage="never",
    source=(
        VERL_ENGINE.says(
            "MegatronEngine.forward_backward_batch",
            "max_seqlen_per_dp_cp_rank=self.engine_config.max_seqlen_per_dp_cp_rank",
            ">=0.9",
        ),
    ),
    applies=is_verl,
    good=Example("verl", VERL, DEV),
    bad=Example("verl", VERL + " actor_rollout_ref.actor.ppo_max_token_len_per_gpu=32768", DEV),
)
def verl_micro_batch_sizes_mean_nothing(v: View) -> Problem | None:
    """Under dynamic CP verl's other micro-batch sizes mean nothing.

    From 0.9 on the engine skips the code that forms micro-batches and takes them from megatron-core's scheduler,
    which knows max_seqlen_per_dp_cp_rank alone.
    """
    if not v.at_least("verl", "0.9"):
        return None
    written = [
        name
        for name in _IGNORED
        if (fact := v.fact(name)) is not None and fact.origin == "launch" and fact.value not in (None, False)
    ]
    if not written:
        return None
    return Problem(
        message="nothing reads them: max_seqlen_per_dp_cp_rank alone bounds a micro-batch",
        found=f"dynamic_context_parallel with {', '.join(written)}",
        wanted="max_seqlen_per_dp_cp_rank set to what a rank can hold",
        facts=tuple(written),
    )


@rule(
    "DCP025",
    severity="error",
    effect="hang",
    stage="training",
    source=(
        VERL_MEGATRON_UTILS.says(
            "dynamic_cp_split_batch",
            "num_seq_per_local_cp = math.ceil(len(seq_len_effective) / local_dp_size)",
            ">=0.8,<0.9",
        ),
    ),
    applies=is_verl,
    good=Example("verl", VERL, DEV),
    bad=Example(
        "verl", "engine=megatron engine.dynamic_context_parallel=True engine.max_seqlen_per_dp_cp_rank=4096", _OLD
    ),
)
def verl_can_split_its_sequences(v: View) -> Problem | None:
    """verl 0.8 splits micro-batches whose count of sequences it can split.

    verl 0.8 returns a micro-batch with fewer sequences than ranks unsplit and without a CP size, and cuts others
    into slices of ceil(n / groups): of 16 groups two thirds of all counts leave the last ones empty. Both are gone
    in 0.9.
    """
    if v.at_least("verl", "0.9") or not v.at_least("verl", "0.8"):
        return None
    num_sequences: Any = v.get("micro_batch_size") if v.get("use_dynamic_bsz") is False else None
    ranks: Any = num_ranks(v) if v.known("world_size", "dp", "cp") else None
    known = num_sequences is not None and ranks is not None
    if known and _splits_evenly(num_sequences, ranks):
        return None
    unsplit = known and num_sequences < ranks
    if unsplit:
        message = "context parallelism is off: with fewer sequences than ranks every rank runs all of them, unsplit"
    elif known:
        message = "training hangs: some ranks get no sequence of a micro-batch and stop, the others wait"
    else:
        message = (
            "micro-batches with fewer sequences than ranks switch context parallelism off, and many counts "
            "leave ranks without a sequence: they stop, the others hang"
        )
    return Problem(
        message=message,
        found=f"verl {v.verl}, which splits a micro-batch of "
        + (f"{num_sequences} sequences over {ranks} ranks by count" if known else "any size by count"),
        wanted="verl 0.9 or newer, or a fixed micro-batch that is a multiple of DP x CP",
        facts=("dynamic_context_parallel", "verl", "micro_batch_size"),
        fixes=(Fix({"use_dynamic_bsz": False, "micro_batch_size": ranks}, "one sequence or more per rank"),)
        if ranks is not None
        else (),
        severity=None if known else "warning",
        effect="silent" if unsplit else "hang",
        stage="never" if unsplit else "training",
    )


@rule(
    "DCP026",
    severity="info",
    effect="note",
    stage="never",
    source=(
        VERL_ENGINE.says(
            "MegatronEngineWithLMHead.forward_step", "dp_size=mpu.get_data_parallel_world_size()", ">=0.8,<0.9"
        ),
        VERL_ENGINE.says(
            "MegatronEngine._build_tf_config",
            '"context_parallel_size": self.engine_config.context_parallel_size',
            ">=0.9",
        ),
    ),
    applies=is_verl,
    good=Example("verl", VERL, DEV),
    bad=Example("verl", VERL + f" {ACTOR}context_parallel_size=4", DEV),
)
def verl_static_cp_means_what_it_says(v: View) -> Problem | None:
    """The static CP size under verl's dynamic CP says what this version takes it for.

    verl 0.8 splits a batch by the data-parallel rank, while megatron-core's groups count DP x CP ranks: the two
    agree at a static size of 1. From 0.9 on the static size shards nothing; it is part of DP x CP, and verl's
    manual derives max_seqlen_per_dp_cp_rank from it.
    """
    if v.cp == 1:
        return None
    old = not v.at_least("verl", "0.9")
    return Problem(
        message="batches are split by the data-parallel rank and groups are counted over DP x CP: sequences meet the "
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
    severity="error",
    effect="crash",
    stage="init",
    source=(VERL_ENGINE.says("MegatronEngine._init_device_mesh", "initialized without dynamic DPxCP groups", ">=0.9"),),
    applies=_is_written,
    good=Example("verl", f"{VERL} {_REF}=True", DEV),
    bad=Example("verl", f"{VERL} {_REF}=False", DEV),
)
def all_models_have_dynamic_cp(v: View) -> Problem | None:
    """Every model of a worker has dynamic CP, or none has.

    Models that share a worker share megatron-core's process groups, which the first engine builds. From 0.9 on the
    reference model follows the actor unless its own key says otherwise; before, its default is off.
    """
    wanted = bool(v.dynamic_context_parallel)
    written = {setting.key for setting in v.launch.reading.settings}
    follows = not v.known("verl") or v.at_least("verl", "0.9")
    for reading in v.launch.reading.others:
        other = build_launch(reading, assumed=v.launch.assumed, model=v.launch.model).facts
        fact, strategy = other.get("dynamic_context_parallel"), other.get("strategy")
        if strategy is None or strategy.value != "megatron" or fact is None:
            continue
        is_on = bool(fact.value) and (follows or f"{reading.role}.megatron.dynamic_context_parallel" in written)
        if is_on == wanted:
            continue
        names = {True: "on", False: "off"}
        return Problem(
            message="a worker that holds both models stops, or finds no groups: the first engine builds them for all",
            found=f"dynamic_context_parallel {names[wanted]} in {v.launch.reading.role}, {names[not wanted]} in "
            f"{reading.role}",
            wanted="the same value for every model that shares a worker",
            facts=("dynamic_context_parallel",),
        )
    return None


RULES = (
    verl_has_what_dynamic_cp_needs,
    verl_micro_batch_sizes_mean_nothing,
    verl_can_split_its_sequences,
    verl_static_cp_means_what_it_says,
    all_models_have_dynamic_cp,
)
