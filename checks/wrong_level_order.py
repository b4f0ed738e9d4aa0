"""A negative control: levels in the wrong order, [outer, inner] instead of [inner, outer], must be detected.

Attention by a2a+p2p over 4 ranks gets its two process groups swapped, as if they were built by hand and passed to
set_context_parallel_group. Sizes [2, 2] look the same either way. Transformer Engine and our reference both assume
cp rank = outer rank x inner size + inner rank, so each rank attends to the wrong tokens; the reference does so
silently. This must be detected: by the probe, which compares the groups' members, and by parity with one process.

A wrong order of the sizes ([2, 4] where [4, 2] fits the node) is different: the result is right but slow.
"""

import sys

from megatron_hcp.proofs.program import Program

BOUND = 1e-10
SIZES = (2, 2)


def work(world, options):
    # Imported here, so that --help and "torch is not installed" work without torch.
    import torch

    from megatron_hcp.proofs.compare import AttentionCase, errors_of
    from megatron_hcp.proofs.dot_product_attention import DotProductAttention
    from megatron_hcp.runtime.active import hcp_problem
    from megatron_hcp.runtime.groups import GroupBuilder

    everyone = list(range(world.size))
    case = AttentionCase("sbhd", 8, 4, torch.float64, world.size)
    with GroupBuilder(world.timeout) as builder:
        inner, outer = builder.build_levels([everyone], SIZES)
        for state, groups in (("[inner, outer]", [inner, outer]), ("[outer, inner]", [outer, inner])):
            attention = DotProductAttention(case.num_heads, case.head_dim, num_gqa_groups=case.kv_heads)
            attention.set_context_parallel_group(groups, everyone, None, "a2a+p2p")
            said = hcp_problem(attention, SIZES)
            errors = errors_of(case, attention, world.device)
            error = max(errors.largest.values())
            if groups[0] is inner:
                world.expect(f"{state}: the probe passes", said is None, said or "")
                world.expect_at_most(f"{state}: equals attention in one process", error, BOUND, str(errors))
            else:
                world.expect(f"{state}: the probe names the members", "wanted [[" in (said or ""), said or "it passed")
                world.expect(f"{state}: differs from attention in one process", error > 1e-3, str(errors))


if __name__ == "__main__":
    sys.exit(Program("wrong_level_order", __doc__, work, world_size=lambda options: 4, needs=("torch",)).main())
