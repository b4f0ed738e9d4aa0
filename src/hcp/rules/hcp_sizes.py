"""Hierarchical CP: the sizes of the levels."""

from __future__ import annotations

from math import prod

from hcp.rules.rule import Example, Fix, Problem, Rule, Source, View


def _uses_hcp(v: View) -> bool:
    return v.get("cp") != 1 and "a2a+p2p" in v.comm_types


def level_sizes(v: View) -> tuple[int, int] | None:
    """(inner, outer) sizes to suggest: the widest a2a level that the heads and the NVLink domain allow; else None."""
    cp = v.get("cp")
    if not isinstance(cp, int) or cp < 4:
        return None
    kv_heads, heads, tp = v.get("kv_heads"), v.get("heads"), v.get("tp", 1)
    domain = v.get("nvlink_domain", 8)
    for inner in range(cp // 2, 1, -1):
        if cp % inner or domain % (tp * inner):
            continue
        if heads is not None and (heads // tp) % inner:
            continue
        if kv_heads is not None and max(1, kv_heads // tp) % inner:
            continue
        return inner, cp // inner
    return None


def _hcp001(v: View) -> Problem | None:
    if v.cp == 1 or v.hcp_sizes:
        return None
    sizes = level_sizes(v)
    fixes = [Fix({"hcp_sizes": sizes}, "builds the inner a2a and outer p2p groups")] if sizes else []
    fixes += [
        Fix({"cp_comm_type": "p2p"}, "one flat ring over the whole CP group"),
        Fix({"cp_comm_type": "a2a"}, "one flat all-to-all over the whole CP group"),
    ]
    return Problem(
        message=f"context parallelism is silently off: each rank attends only to its own 1/{v.cp} of the sequence",
        found="cp_comm_type a2a+p2p without hierarchical_context_parallel_sizes",
        wanted=f"two sizes with the product {v.cp}",
        facts=("hcp_sizes", "cp_comm_type"),
        fixes=tuple(fixes),
    )


def _hcp002(v: View) -> Problem | None:
    sizes, product = v.hcp_sizes, prod(v.hcp_sizes)
    if product == v.cp:
        return None
    wanted = level_sizes(v)
    fixes = [Fix({"hcp_sizes": wanted}, "the levels cover the CP group")] if wanted else []
    if product >= 1:
        fixes.append(Fix({"cp": product}, f"context parallelism over {product} ranks"))
    return Problem(
        message="start-up stops with an AssertionError that has no text (Bridge names the product)",
        found=f"hierarchical_context_parallel_sizes {list(sizes)}, product {product}, at context_parallel_size {v.cp}",
        wanted=f"a product of {v.cp}",
        facts=("hcp_sizes", "cp"),
        fixes=tuple(fixes),
    )


RULES = (
    Rule(
        id="HCP001",
        title="a2a+p2p comes with its hierarchical sizes",
        severity="error",
        effect="silent",
        stage="never",
        why=(
            "Without sizes megatron-core builds no hierarchical groups and hands Transformer Engine None instead of the "
            "CP group. Transformer Engine takes that for a CP size of 1, so each rank runs causal attention over its own "
            "slice. Nothing is logged; throughput looks several times too good and the loss stays too high."
        ),
        source=(
            Source("transformer-engine",
                   "transformer_engine/pytorch/attention/dot_product_attention/dot_product_attention.py",
                   "DotProductAttention.forward", "cp_size = 1", ">=2.4"),
            Source("megatron-core", "megatron/core/extensions/transformer_engine.py", "TEDotProductAttention.__init__",
                   "get_hierarchical_context_parallel_groups", ">=0.12"),
        ),
        applies=_uses_hcp,
        check=_hcp001,
        good=Example("bridge-provider", "model.context_parallel_size=4 model.cp_comm_type=a2a+p2p "
                     "model.hierarchical_context_parallel_sizes=[2,2]"),
        bad=Example("bridge", "model.context_parallel_size=4 model.cp_comm_type=a2a+p2p "
                    "model.hierarchical_context_parallel_sizes=null"),
    ),
    Rule(
        id="HCP002",
        title="The hierarchical sizes multiply to the context-parallel size",
        severity="error",
        effect="crash",
        stage="init",
        why=(
            "megatron-core compares the product with the CP size where it builds the groups, and asserts without a text; "
            "Megatron-LM's command line does the same earlier. The config constructors do not look."
        ),
        source=(
            Source("megatron-core", "megatron/core/parallel_state.py", "initialize_model_parallel",
                   "np.prod(hierarchical_context_parallel_sizes) == context_parallel_size", ">=0.13"),
        ),
        applies=lambda v: bool(v.hcp_sizes),
        check=_hcp002,
        good=Example("mlm", "--context-parallel-size 4 --cp-comm-type a2a+p2p "
                     "--hierarchical-context-parallel-sizes 2 2"),
        bad=Example("mlm", "--context-parallel-size 6 --cp-comm-type a2a+p2p "
                    "--hierarchical-context-parallel-sizes 2 2"),
    ),
)
