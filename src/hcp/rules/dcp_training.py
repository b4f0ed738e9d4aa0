"""Dynamic context parallelism in Megatron-LM: what else its training loop asks for, on main and on dev."""

from __future__ import annotations

from typing import Any

from hcp.rules.dcp_view import is_dev, is_hybrid, num_ranks
from hcp.rules.rule import Example, Fix, Problem, View, rule
from hcp.rules.upstream import ARGUMENTS, DATA_SCHEDULE, LM_DATA_SCHEDULE, SCHEDULES, TRAINING, VERL_ENGINE

_HYBRID = (
    "--hybrid-context-parallel --max-seqlen-per-dp-cp-rank 4096 --context-parallel-size 8 --seq-length 32768 "
    "--no-create-attention-mask-in-dataloader "
)
_LOOP = "--sft --calculate-per-token-loss --micro-batch-size 1 --eval-iters 0"
_ON = "world_size=8 mcore=0.17.0 te=2.14"
_DYNAMIC = (
    "--dynamic-context-parallel --max-seqlen-per-dp-cp-rank 4096 --context-parallel-size 8 --seq-length 32768 "
    "--no-create-attention-mask-in-dataloader " + _LOOP
)
_ON_DEV = "world_size=8 mcore=0.19.0 mcore_branch=dev te=2.14"


@rule(
    "DCP002",
    severity="error",
    effect="crash",
    stage="config",
    source=(
        ARGUMENTS.says("validate_args", "Hybrid context parallelism not supported with pipeline parallelism", ">=0.16"),
        SCHEDULES.says(
            "forward_backward_pipelining_without_interleaving", versions=">=0.16", absent="hybrid_context_parallel"
        ),
    ),
    applies=lambda v: v.kind == "mlm" and is_hybrid(v),
    good=Example("mlm", _HYBRID + _LOOP, _ON),
    bad=Example("mlm", _HYBRID + _LOOP + " --pipeline-model-parallel-size 2", "world_size=16 mcore=0.17.0 te=2.14"),
)
def hybrid_cp_has_no_pipeline(v: View) -> Problem | None:
    """Hybrid CP runs without pipeline parallelism.

    Of megatron-core's three schedules only the one without a pipeline has a branch for hybrid CP.
    """
    if v.pp == 1:
        return None
    return Problem(
        message="the command line stops with an assertion: only the schedule without a pipeline knows hybrid CP",
        found=f"hybrid_context_parallel at pipeline_model_parallel_size {v.pp}",
        wanted="pipeline_model_parallel_size 1 (megatron-core's dev branch and verl allow a pipeline)",
        facts=("pp",),
        fixes=(
            Fix({"pp": 1, "vpp": None, "cp": v.cp * v.pp}, "the ranks of the stages join the groups of sequences"),
            Fix({"pp": 1, "vpp": None}, "no pipeline, more data parallelism"),
        ),
    )


@rule(
    "DCP003",
    severity="error",
    effect="crash",
    stage="config",
    source=(
        ARGUMENTS.says("validate_args", "Hybrid context parallelism not supported with CUDA Graph", ">=0.16"),
        ARGUMENTS.says("validate_args", "del args.enable_cuda_graph", ">=0.16"),
    ),
    applies=lambda v: v.kind == "mlm" and is_hybrid(v),
    good=Example("mlm", _HYBRID + _LOOP, _ON),
    bad=Example("mlm", _HYBRID + _LOOP + " --enable-cuda-graph", _ON),
)
def hybrid_cp_has_no_cuda_graphs(v: View) -> Problem | None:
    """Hybrid CP runs without CUDA graphs.

    Group and length change from one sequence to the next, and a graph is captured for one of each. The command line
    means to refuse graphs, but asks for the older flag, which it has deleted by then; the newer option it does not
    ask for at all.
    """
    if v.enable_cuda_graph:
        message = "the command line stops with an AttributeError: it deletes the flag before it asks for it"
        fact = "enable_cuda_graph"
    elif v.cuda_graph_impl not in (None, "none"):
        message = (
            "the check for CUDA graphs asks for an older flag and lets this one pass: graphs are captured for "
            "shapes and groups that change with every micro-batch"
        )
        fact = "cuda_graph_impl"
    else:
        return None
    older = fact == "enable_cuda_graph"
    return Problem(
        message=message,
        found="hybrid_context_parallel with " + ("enable_cuda_graph" if older else f"cuda_graph_impl {v[fact]}"),
        wanted="no CUDA graphs",
        facts=(fact,),
        fixes=(Fix({"enable_cuda_graph": False, "cuda_graph_impl": "none"}, "kernels are launched one by one"),),
        severity=None if older else "warning",
        stage="config" if older else "training",
    )


@rule(
    "DCP004",
    severity="error",
    effect="crash",
    stage="config",
    source=(
        ARGUMENTS.says("validate_args", "must be used with --calculate-per-token-loss", ">=0.16"),
        ARGUMENTS.says("validate_args", "only supported with single dataloader type", ">=0.16"),
        ARGUMENTS.says("validate_args", "Hybrid context parallelism not supported with Megatron FSDP", ">=0.16"),
    ),
    applies=lambda v: v.kind == "mlm" and (is_hybrid(v) or is_dev(v)),
    good=Example("mlm", _HYBRID + _LOOP, _ON),
    bad=Example("mlm", _HYBRID + _LOOP + " --dataloader-type cyclic", _ON),
)
def training_loop_fits_dynamic_cp(v: View) -> Problem | None:
    """Dynamic CP in Megatron-LM has per-token loss, the single loader and no Megatron-FSDP.

    A rank may run more sequences than its neighbour, so only sums over tokens, divided once, are right. The sampler
    that hands whole batches to the scheduler belongs to the single data loader.
    """
    wrong: dict[str, tuple[Any, str]] = {}
    if not v.calculate_per_token_loss:
        wrong["calculate_per_token_loss"] = (True, "no calculate_per_token_loss")
    if v.dataloader_type not in (None, "single"):
        wrong["dataloader_type"] = ("single", f"dataloader_type {v.dataloader_type}")
    if v.fsdp:
        wrong["fsdp"] = (False, "Megatron-FSDP")
    if not wrong:
        return None
    return Problem(
        message="the command line stops with an assertion",
        found=f"dynamic CP with {', '.join(text for _, text in wrong.values())}",
        wanted="per-token loss, the single data loader and no Megatron-FSDP",
        facts=tuple(wrong),
        fixes=(Fix({name: value for name, (value, _) in wrong.items()}, "what dynamic CP needs"),),
    )


@rule(
    "DCP013",
    severity="error",
    effect="crash",
    stage="training",
    source=(
        TRAINING.says("train", "train_data_iterator = iter(HybridCPDataLoaderWrapper(train_data_iterator, config))"),
        SCHEDULES.says("forward_backward_no_pipelining", "elif config.hybrid_context_parallel:", ">=0.16"),
    ),
    applies=lambda v: v.kind == "mlm" and is_hybrid(v),
    good=Example("mlm", _HYBRID + _LOOP, _ON),
    bad=Example("mlm", _HYBRID + _LOOP.replace("--eval-iters 0", "--eval-iters 10"), _ON),
)
def hybrid_cp_has_no_evaluation(v: View) -> Problem | None:
    """Hybrid CP trains without evaluation.

    Megatron-LM wraps the training iterator alone. The schedule decides by the configuration, so evaluation takes
    the same branch with an iterator that yields plain batches, at the first --eval-interval.
    """
    if not v.eval_iters:
        return None
    return Problem(
        message="the first evaluation stops: its data iterator is not wrapped, and the schedule expects groups from it",
        found=f"hybrid_context_parallel with eval_iters {v.eval_iters}",
        wanted="eval_iters 0, and evaluation in a job of its own",
        facts=("eval_iters",),
        fixes=(Fix({"eval_iters": 0}, "no evaluation while training"),),
    )


@rule(
    "DCP014",
    severity="error",
    effect="silent",
    stage="never",
    source=(
        SCHEDULES.says(
            "forward_backward_no_pipelining",
            "if config.overlap_moe_expert_parallel_comm and not forward_only:",
            ">=0.16",
        ),
    ),
    applies=lambda v: v.kind in ("mlm", "bridge-provider") and is_hybrid(v),
    good=Example("mlm", _HYBRID + _LOOP, _ON),
    bad=Example("mlm", _HYBRID + _LOOP + " --overlap-moe-expert-parallel-comm", _ON),
)
def hybrid_cp_has_no_expert_overlap(v: View) -> Problem | None:
    """Hybrid CP and the overlapped expert all-to-all exclude each other.

    The schedule asks for the overlap first and only else for hybrid CP; nothing compares the two switches.
    """
    if not v.overlap_moe_expert_parallel_comm:
        return None
    return Problem(
        message="the overlapping schedule is chosen first, so the groups of hybrid CP are never used",
        found="hybrid_context_parallel with overlap_moe_expert_parallel_comm",
        wanted="one of the two",
        facts=("overlap_moe_expert_parallel_comm",),
        fixes=(Fix({"overlap_moe_expert_parallel_comm": False}, "hybrid CP runs"),),
    )


@rule(
    "DCP015",
    severity="error",
    effect="crash",
    stage="training",
    source=(DATA_SCHEDULE.says("HybridCPDataLoaderWrapper.unpack_batch", 'sample["cu_seqlens"]', ">=0.16"),),
    applies=lambda v: v.kind == "mlm" and (is_hybrid(v) or is_dev(v)),
    good=Example("mlm", _HYBRID + _LOOP, _ON),
    bad=Example("mlm", _HYBRID + _LOOP.replace("--micro-batch-size 1", "--micro-batch-size 2"), _ON),
)
def rows_are_packed_singly(v: View) -> Problem | None:
    """Dynamic CP in Megatron-LM gets packed rows, one per micro-batch.

    The wrapper cuts rows at cu_seqlens, which only the data set of --sft returns. Ranks that receive the batch from
    another TP rank allocate micro-batch-size rows for what is a single packed one.
    """
    if v.sft and v.micro_batch_size in (None, 1):
        return None
    found = "a data set without --sft" if not v.sft else f"micro_batch_size {v.micro_batch_size}"
    edits = {"sft": True, "micro_batch_size": 1, "attention_mask_in_dataloader": False}
    return Problem(
        message="the first batch stops: it has no boundaries of sequences"
        if not v.sft
        else "the ranks of a TP group disagree on the shape of the batch",
        found=f"dynamic CP with {found}",
        wanted="packed rows (--sft) and micro_batch_size 1",
        facts=("sft", "micro_batch_size") if not v.sft else ("micro_batch_size", "sft"),
        fixes=(Fix(edits, "packed rows, one per micro-batch"),),
    )


@rule(
    "DCP017",
    severity="error",
    effect="crash",
    stage="config",
    source=(
        LM_DATA_SCHEDULE.says("wrap_data_iterator", "config.sequence_packing_scheduler", ">=0.18"),
        VERL_ENGINE.says(
            "MegatronEngine._build_tf_config", '"sequence_packing_scheduler": "default_dynamic_cp"', ">=0.9"
        ),
    ),
    applies=lambda v: v.kind == "mlm" and is_dev(v),
    good=Example("mlm", _DYNAMIC + " --sequence-packing-scheduler default_dynamic_cp", _ON_DEV),
    bad=Example("mlm", _DYNAMIC, _ON_DEV),
)
def dev_branch_has_its_settings(v: View) -> Problem | None:
    """The dev branch's dynamic CP has its scheduler, its group sizes and its versions.

    The dev branch asserts that the scheduler is default_dynamic_cp, that the smallest group is 1 to DP x CP, that
    experts exchange tokens by alltoall or flex, and that Transformer Engine is 2.9 or newer. On main the
    scheduler's name is read, and no field holds it.
    """
    wrong: list[str] = []
    edits: dict[str, Any] = {}
    if v.sequence_packing_scheduler != "default_dynamic_cp":
        wrong.append(f"sequence_packing_scheduler {v.sequence_packing_scheduler or 'unset'}")
        edits["sequence_packing_scheduler"] = "default_dynamic_cp"
    smallest = v.min_dynamic_context_parallel_size
    if smallest is None or not 1 <= smallest <= num_ranks(v):
        wrong.append(f"min_dynamic_context_parallel_size {smallest} of {num_ranks(v)} ranks")
        edits["min_dynamic_context_parallel_size"] = 1
    if v.get("num_experts") and v.moe_token_dispatcher_type not in ("alltoall", "flex"):
        wrong.append(f"moe_token_dispatcher_type {v.moe_token_dispatcher_type}")
        edits["moe_token_dispatcher_type"] = "alltoall"
    if v.known("te") and not v.at_least("te", "2.9"):
        wrong.append(f"Transformer Engine {v.te}")
    if not wrong:
        return None
    return Problem(
        message="start-up stops with an assertion of the dev branch",
        found=f"dynamic_context_parallel with {', '.join(wrong)}",
        wanted="the scheduler default_dynamic_cp, a smallest group of 1 to DP x CP, a dispatcher alltoall or flex, and "
        "Transformer Engine 2.9 or newer",
        facts=(*edits, *(() if edits else ("te",))),
        fixes=(Fix(edits, "what the dev branch asks for"),) if edits else (),
    )


RULES = (
    hybrid_cp_has_no_pipeline,
    hybrid_cp_has_no_cuda_graphs,
    training_loop_fits_dynamic_cp,
    hybrid_cp_has_no_evaluation,
    hybrid_cp_has_no_expert_overlap,
    rows_are_packed_singly,
    dev_branch_has_its_settings,
)
