"""Hierarchical CP: whether the sizes of the levels are set, legal and used."""

from __future__ import annotations

from math import prod

from megatron_hcp.rules.cp.view import HIERARCHICAL, comm_types, under_cp
from megatron_hcp.rules.hcp.launches import BRIDGE, LEVELS, MLM
from megatron_hcp.rules.hcp.view import drop_fixes, flat_fixes, has_sizes, level_fixes, runs_hcp, uses_hcp
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import (
    ARGUMENTS,
    BRIDGE_CONFIG,
    EXTENSION_TE,
    PARALLEL_STATE,
    TE_CONTEXT_PARALLEL,
    TE_DOT_PRODUCT_ATTENTION,
)
from megatron_hcp.rules.view import View


def _demands_sizes(v: View) -> bool:
    """Whether the launcher fails at start-up if a2a+p2p has no sizes, whatever the CP size."""
    return v.dialect == "mlm" or (v.dialect == "bridge" and v.at_least("bridge", "0.4.0"))


def _wants_sizes(v: View) -> bool:
    """Whether some layer is hierarchical; at a CP size of 1, whether the launcher requires sizes anyway."""
    if v.get("cp") == 1 and v.dialect in ("mlm", "bridge"):
        # Without CP an unknown type doesn't matter.
        return v.known("cp_comm_type") and HIERARCHICAL in comm_types(v) and _demands_sizes(v)
    return uses_hcp(v)


def _passes_sizes_on(v: View) -> bool:
    """Whether the sizes reach the code that builds the groups: verl doesn't pass them on."""
    return v.dialect != "verl" and has_sizes(v)


def _has_an_empty_list(v: View) -> bool:
    """Whether Bridge skips the product because the sizes are null. HCP001 reports it if a layer needs them."""
    is_empty = v.dialect == "bridge" and v.get("hcp_sizes") is not None and not v.hcp_sizes
    return is_empty and v.cp != 1 and not uses_hcp(v) and v.at_least("bridge", "0.4")


@rule(
    "HCP001",
    "error silent never",
    source=(
        EXTENSION_TE.says("TEDotProductAttention.__init__", "get_hierarchical_context_parallel_groups", ">=0.12"),
        TE_DOT_PRODUCT_ATTENTION.says("DotProductAttention.forward", "cp_size = 1", ">=2.3"),
        ARGUMENTS.says("validate_args", 'if "a2a+p2p" in args.cp_comm_type:', ">=0.10"),
        BRIDGE_CONFIG.says(
            "ConfigContainer._validate_cp_comm_type",
            'if any("a2a+p2p" in ct for ct in cp_comm_types):',
            ">=0.4",
            where="checkout",
        ),
    ),
    applies=_wants_sizes,
    good=Example("bridge", BRIDGE),
    bad=Example(
        "bridge",
        "model.context_parallel_size=4 model.cp_comm_type=a2a+p2p model.hierarchical_context_parallel_sizes=null",
    ),
)
def sizes_are_given(v: View) -> Problem | None:
    """a2a+p2p comes with its hierarchical sizes.

    Without sizes megatron-core builds no hierarchical groups and passes Transformer Engine None instead of the CP
    group. Transformer Engine treats that as a CP size of 1, so each rank runs causal attention over its own slice.
    Nothing is logged; throughput looks several times too good and the loss stays too high. Megatron-LM's command line
    and Bridge from 0.4.0 on reject such a launch; Bridge's providers, verl and older versions of Bridge don't.
    """
    if v.hcp_sizes or (v.cp == 1 and v.hcp_sizes is not None):
        return None
    # An unknown Bridge version changes the effect, not the verdict, so it isn't requested.
    refused = v.dialect == "mlm" or (v.dialect == "bridge" and v.known("bridge") and _demands_sizes(v))
    message = f"context parallelism is silently off: each rank attends only to its own 1/{v.cp} of the sequence"
    if refused:
        message = "start-up fails with an assertion; if your job did train, it did not run with these arguments"
    elif v.dialect == "bridge" and not v.known("bridge"):
        message += " (Bridge from 0.4.0 on fails at start-up instead)"
    return Problem(
        message=message,
        found="cp_comm_type a2a+p2p without hierarchical_context_parallel_sizes",
        wanted=f"two sizes with the product {v.cp}" if v.cp > 3 else f"a flat communication type at CP size {v.cp}",
        facts=("hcp_sizes", "cp_comm_type"),
        fixes=(*level_fixes(v), *flat_fixes(v)),
        effect="crash" if refused else "silent",
        stage="config" if refused else "never",
    )


@rule(
    "HCP002",
    "error crash init",
    source=(
        PARALLEL_STATE.says(
            "initialize_model_parallel",
            "np.prod(hierarchical_context_parallel_sizes) == context_parallel_size",
            ">=0.13",
        ),
        ARGUMENTS.says(
            "validate_args", "args.context_parallel_size == prod(args.hierarchical_context_parallel_sizes)", ">=0.10"
        ),
    ),
    applies=lambda v: _passes_sizes_on(v) or _has_an_empty_list(v),
    good=Example("mlm", MLM),
    bad=Example("mlm", f"--context-parallel-size 6 {LEVELS} 2 2"),
)
def sizes_product(v: View) -> Problem | None:
    """The hierarchical sizes multiply to the context-parallel size.

    When building the groups, megatron-core compares the product with the CP size in an assertion without a message;
    Megatron-LM's command line does the same earlier, and Bridge from 0.4.0 on reports the numbers. The config
    constructors don't check it.
    """
    sizes = v.hcp_sizes
    product = prod(sizes)
    if (sizes and min(sizes) < 1) or product == v.cp:
        return None
    named = v.dialect == "bridge" and v.known("bridge") and v.at_least("bridge", "0.4.0")
    return Problem(
        message="start-up fails with an AssertionError" + ("" if named else " without a message"),
        found=f"hierarchical_context_parallel_sizes {list(sizes)}, product {product}, at context_parallel_size {v.cp}",
        wanted=f"a product of {v.cp}",
        facts=("hcp_sizes", "cp"),
        fixes=(*level_fixes(v), Fix({"cp": product}, f"context parallelism over {product} ranks"), *drop_fixes(v)),
        stage="config" if v.dialect == "mlm" or named else "init",
    )


@rule(
    "HCP003",
    "error crash first-forward",
    source=(
        TE_CONTEXT_PARALLEL.says(
            "attn_forward_func_with_cp", "isinstance(cp_group, list) and len(cp_group) == 2", ">=2.8"
        ),
        TE_CONTEXT_PARALLEL.says(
            "attn_forward_func_with_cp", "Current implementation only supports two-level CP groups!", ">=2.3,<2.8"
        ),
    ),
    applies=runs_hcp,
    good=Example("mlm", f"--context-parallel-size 8 {LEVELS} 4 2"),
    bad=Example("mlm", f"--context-parallel-size 8 {LEVELS} 2 2 2"),
)
def there_are_two_levels(v: View) -> Problem | None:
    """There are exactly two hierarchical levels.

    megatron-core builds any number of levels, and its docstring shows three. Transformer Engine supports exactly two
    but checks only in the first forward pass, after the job has started, the model has been built and the checkpoint
    loaded.
    """
    sizes = v.hcp_sizes
    if not sizes or len(sizes) == 2:
        return None
    fixes = level_fixes(v)
    if len(sizes) > 2 and min(sizes) >= 1:
        fixes.insert(0, Fix({"hcp_sizes": (sizes[0], prod(sizes[1:]))}, "keeps the inner level and merges the others"))
    return Problem(
        message="the first forward pass fails with an assertion, after the model, the checkpoint and the data are "
        "loaded",
        found=f"hierarchical_context_parallel_sizes {list(sizes)}: {len(sizes)} level{'s' if len(sizes) > 1 else ''}",
        wanted="two sizes: the inner (a2a) one and the outer (p2p) one",
        facts=("hcp_sizes",),
        fixes=(*fixes, *flat_fixes(v)),
    )


@rule(
    "HCP004",
    "error crash init",
    source=(
        PARALLEL_STATE.says("create_hierarchical_groups", "s=hierarchical_group_sizes[level],", ">=0.13"),
        # A size of 0 ends here already: the product is 0.
        ARGUMENTS.says(
            "validate_args", "args.context_parallel_size == prod(args.hierarchical_context_parallel_sizes)", ">=0.10"
        ),
    ),
    applies=_passes_sizes_on,
    good=Example("bridge", BRIDGE),
    bad=Example(
        "bridge",
        "model.context_parallel_size=4 model.cp_comm_type=a2a+p2p model.hierarchical_context_parallel_sizes=[-2,-2]",
    ),
)
def sizes_are_positive(v: View) -> Problem | None:
    """All hierarchical sizes are positive.

    Two negative sizes pass every product check, because the product is correct. Building the groups with negative
    lengths then fails deep inside einops or torch with a message about shapes that names no option.
    """
    sizes = v.hcp_sizes
    if min(sizes) >= 1:
        return None
    unsigned = [] if 0 in sizes else [Fix({"hcp_sizes": tuple(map(abs, sizes))}, "the same sizes without the signs")]
    return Problem(
        message="start-up fails, at the latest while building the hierarchical groups",
        found=f"hierarchical_context_parallel_sizes {list(sizes)}",
        wanted="sizes of 1 or more",
        facts=("hcp_sizes",),
        fixes=(*unsigned, *level_fixes(v), *drop_fixes(v)),
    )


@rule(
    "HCP005",
    "info note never",
    source=(
        TE_CONTEXT_PARALLEL.says(
            "attn_forward_func_with_cp", "if get_distributed_world_size(cp_group[0]) == 1:", ">=2.3"
        ),
    ),
    applies=runs_hcp,
    good=Example("mlm", MLM),
    bad=Example("mlm", f"--context-parallel-size 4 {LEVELS} 1 4"),
)
def each_level_has_several_ranks(v: View) -> Problem | None:
    """Both hierarchical levels have more than one rank.

    With an inner size of 1 Transformer Engine runs p2p, with an outer size of 1 it runs a2a. The backend is still
    chosen as for a2a+p2p, so fused attention can be lost for a sliding window or an odd head count although the flat
    type allows it. Writing the flat type makes the setting match what runs.
    """
    sizes = v.hcp_sizes
    if not sizes or len(sizes) != 2 or 1 not in sizes or prod(sizes) != v.cp:
        return None
    flat = "p2p" if sizes[0] == 1 else "a2a"
    return Problem(
        message=f"a one-rank level has no effect: Transformer Engine silently runs plain {flat}",
        found=f"hierarchical_context_parallel_sizes {list(sizes)}",
        wanted=f'two sizes above 1, or cp_comm_type "{flat}"',
        facts=("hcp_sizes", "cp_comm_type"),
        fixes=(*flat_fixes(v, flat), *level_fixes(v)),
    )


@rule(
    "HCP006",
    "warning silent never",
    source=(EXTENSION_TE.says("TEDotProductAttention.__init__", 'elif cp_comm_type == "a2a+p2p":', ">=0.12"),),
    applies=under_cp(has_sizes),
    good=Example("mlm", MLM),
    bad=Example("mlm", "--context-parallel-size 4 --cp-comm-type a2a --hierarchical-context-parallel-sizes 2 2"),
)
def sizes_are_used(v: View) -> Problem | None:
    """Hierarchical sizes are set only if some layer uses them.

    Only layers of type a2a+p2p use the levels. With any other type the groups are created but never used; Megatron-LM
    still prints the sizes at start-up, so the log looks as if hierarchical CP were on.
    """
    if HIERARCHICAL in comm_types(v):
        return None
    fixes = [Fix({"hcp_sizes": None}, "only the misleading setting goes; behavior doesn't change")]
    if len(v.hcp_sizes) == 2 and not isinstance(v.cp_comm_type, tuple):
        fixes.insert(0, Fix({"cp_comm_type": HIERARCHICAL}, "the layers use the levels"))
    return Problem(
        message="hierarchical CP is off: its groups are built and its sizes logged, but no layer uses them",
        found=f"hierarchical_context_parallel_sizes {list(v.hcp_sizes)} with cp_comm_type {', '.join(comm_types(v))}",
        wanted="cp_comm_type a2a+p2p on some layer, or no sizes",
        facts=("cp_comm_type", "hcp_sizes"),
        fixes=tuple(fixes),
    )
