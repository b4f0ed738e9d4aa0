"""What megatron-core's schedule for hybrid CP leaves out: pipelines, CUDA graphs, evaluation, expert overlap."""

from __future__ import annotations

from hcp.rules.dcp.launches import HYBRID, ON_MAIN, hybrid
from hcp.rules.dcp.view import is_dev, is_hybrid, switch
from hcp.rules.rule import Example, Fix, Problem, rule
from hcp.rules.upstream import ARGUMENTS, SCHEDULES, TRAINING
from hcp.rules.view import View

_EXPERTS = "--num-experts 8 --expert-model-parallel-size 4 --moe-token-dispatcher-type alltoall"


@rule(
    "DCP002",
    severity="error",
    effect="crash",
    stage="config",
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

    Group and length change from one sequence to the next, and a graph is captured for one of each. The command line
    means to refuse graphs, but asks for the older flag, which it has deleted by then; it does not ask for the newer
    option, nor for the other older flag, which stands for that option. Dev's dynamic CP has graphs of its own.
    """
    if v.enable_cuda_graph:
        message = "the command line stops with an AttributeError: it deletes the flag before it asks for it"
        fact = "enable_cuda_graph"
    elif is_dev(v):
        return None
    elif v.external_cuda_graph or v.cuda_graph_impl not in (None, "none"):
        message = (
            "the check for CUDA graphs asks for an older flag and lets this one pass: graphs are captured for "
            "shapes and groups that change with every micro-batch"
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
                "kernels are launched one by one",
            ),
        ),
        severity=None if older else "warning",
        stage="config" if older else "training",
    )


@rule(
    "DCP013",
    severity="error",
    effect="crash",
    stage="training",
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
    applies=lambda v: v.dialect in ("mlm", "bridge-provider") and is_hybrid(v),
    good=Example("mlm", HYBRID, ON_MAIN),
    bad=Example("mlm", f"{hybrid(overlap_moe_expert_parallel_comm=True)} {_EXPERTS}", "world_size=8 te=2.14"),
)
def hybrid_cp_excludes_expert_overlap(v: View) -> Problem | None:
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


RULES = (
    hybrid_cp_excludes_pipelines,
    hybrid_cp_excludes_cuda_graphs,
    hybrid_cp_excludes_evaluation,
    hybrid_cp_excludes_expert_overlap,
)
