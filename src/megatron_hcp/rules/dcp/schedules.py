"""What megatron-core's schedule for hybrid CP doesn't support: pipelines, CUDA graphs, evaluation, expert overlap."""

from __future__ import annotations

from megatron_hcp.rules.dcp.launches import HYBRID, ON_MAIN, hybrid
from megatron_hcp.rules.dcp.view import is_dev, is_hybrid, switch
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import ARGUMENTS, SCHEDULES, TRAINING
from megatron_hcp.rules.view import View

_EXPERTS = "--num-experts 8 --disable-bias-linear --expert-model-parallel-size 4 --moe-token-dispatcher-type alltoall"


@rule(
    "DCP002",
    "error crash config",
    source=(
        ARGUMENTS.says(
            "validate_args",
            "Hybrid context parallelism not supported with pipeline parallelism",
            ">=0.16",
            branches=("main",),
        ),
        SCHEDULES.says(
            "forward_backward_pipelining_without_interleaving", versions=">=0.16", absent="hybrid_context_parallel"
        ),
    ),
    applies=lambda v: v.dialect == "mlm" and is_hybrid(v),
    good=Example("mlm", HYBRID, ON_MAIN),
    bad=Example("mlm", hybrid(pipeline_model_parallel_size=2), "world_size=16 mcore=0.17.0 te=2.14"),
)
def hybrid_cp_excludes_pipelines(v: View) -> Problem | None:
    """Hybrid CP runs without pipeline parallelism.

    Of megatron-core's three schedules, only the one without a pipeline implements hybrid CP.
    """
    if v.pp == 1:
        return None
    return Problem(
        message="argument validation fails with an assertion: only the schedule without a pipeline supports hybrid CP",
        found=f"hybrid_context_parallel at pipeline_model_parallel_size {v.pp}",
        wanted="pipeline_model_parallel_size 1 (megatron-core's dev branch and verl do support a pipeline)",
        facts=("pp",),
        fixes=(
            Fix({"pp": 1, "vpp": None, "cp": v.cp * v.pp}, "the stages' ranks become part of the CP groups"),
            Fix({"pp": 1, "vpp": None}, "no pipeline, more data parallelism"),
        ),
    )


@rule(
    "DCP003",
    "error crash config",
    source=(
        ARGUMENTS.says(
            "validate_args", "Hybrid context parallelism not supported with CUDA Graph", ">=0.16", branches=("main",)
        ),
        ARGUMENTS.says("validate_args", "del args.enable_cuda_graph", ">=0.15"),
    ),
    applies=lambda v: v.dialect == "mlm" and (is_hybrid(v) or is_dev(v)),
    good=Example("mlm", HYBRID, ON_MAIN),
    bad=Example("mlm", hybrid(enable_cuda_graph=True), ON_MAIN),
)
def hybrid_cp_excludes_cuda_graphs(v: View) -> Problem | None:
    """Hybrid CP runs without CUDA graphs.

    Group and length change from one sequence to the next, but a graph is captured for one group and one length. The
    command line is meant to reject graphs, but it reads the older flag after deleting it, and checks neither the newer
    option nor the other older flag, which maps to that option. Dynamic CP on dev has its own graph support.
    """
    if v.enable_cuda_graph:
        message = "argument validation fails with an AttributeError: it deletes the flag before reading it"
        fact = "enable_cuda_graph"
    elif is_dev(v):
        return None
    elif v.external_cuda_graph or v.cuda_graph_impl not in (None, "none"):
        message = (
            "the check for CUDA graphs tests only an older flag: graphs are captured although shapes and groups "
            "change with every micro-batch"
        )
        fact = "external_cuda_graph" if v.external_cuda_graph else "cuda_graph_impl"
    else:
        return None
    older = fact == "enable_cuda_graph"
    return Problem(
        message=message,
        found=f"{switch(v)} with " + (f"cuda_graph_impl {v[fact]}" if fact == "cuda_graph_impl" else fact),
        wanted="no CUDA graphs",
        facts=(fact,),
        fixes=(
            Fix(
                {"enable_cuda_graph": False, "external_cuda_graph": False, "cuda_graph_impl": "none"},
                "kernels are launched individually",
            ),
        ),
        severity=None if older else "warning",
        stage="config" if older else "training",
    )


@rule(
    "DCP013",
    "error crash training",
    source=(
        TRAINING.says(
            "train",
            "train_data_iterator = iter(HybridCPDataLoaderWrapper(train_data_iterator, config))",
            ">=0.16",
            branches=("main",),
        ),
        SCHEDULES.says(
            "forward_backward_no_pipelining", "elif config.hybrid_context_parallel:", ">=0.16", branches=("main",)
        ),
    ),
    applies=lambda v: v.dialect == "mlm" and is_hybrid(v),
    good=Example("mlm", HYBRID, ON_MAIN),
    bad=Example("mlm", hybrid(eval_iters=10), ON_MAIN),
)
def hybrid_cp_excludes_evaluation(v: View) -> Problem | None:
    """A launch with hybrid CP runs no evaluation.

    Megatron-LM wraps only the training iterator. The schedule branches on the configuration, so evaluation takes the
    same path with an iterator that yields plain batches, at the first --eval-interval.
    """
    if not v.eval_iters:
        return None
    return Problem(
        message="the first evaluation fails: its data iterator isn't wrapped, and the schedule expects groups from it",
        found=f"hybrid_context_parallel with eval_iters {v.eval_iters}",
        wanted="eval_iters 0, with evaluation in a separate job",
        facts=("eval_iters",),
        fixes=(Fix({"eval_iters": 0}, "no evaluation during training"),),
    )


@rule(
    "DCP014",
    "error silent never",
    source=(
        SCHEDULES.says(
            "forward_backward_no_pipelining",
            "if config.overlap_moe_expert_parallel_comm and not forward_only:",
            ">=0.16",
        ),
    ),
    applies=lambda v: v.dialect in ("mlm", "bridge-provider") and is_hybrid(v),
    good=Example("mlm", HYBRID, ON_MAIN),
    bad=Example("mlm", f"{hybrid(overlap_moe_expert_parallel_comm=True)} --bf16 {_EXPERTS}", "world_size=8 te=2.14"),
)
def hybrid_cp_excludes_expert_overlap(v: View) -> Problem | None:
    """Hybrid CP and the overlapped expert all-to-all are not combined.

    The schedule tests for the overlap first and for hybrid CP only otherwise; nothing checks the combination.
    """
    if not v.overlap_moe_expert_parallel_comm:
        return None
    return Problem(
        message="the overlapping schedule takes precedence, so the groups of hybrid CP are never used",
        found="hybrid_context_parallel with overlap_moe_expert_parallel_comm",
        wanted="one of the two",
        facts=("overlap_moe_expert_parallel_comm",),
        fixes=(Fix({"overlap_moe_expert_parallel_comm": False}, "hybrid CP runs"),),
    )
