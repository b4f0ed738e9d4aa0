"""Windows and sinks under context parallelism are those of one process, whatever travels between the ranks.

Every communication type runs forward and backward in float64, with a sliding window and with a learnable sink per head.
Output, dq, dk, dv and the sinks' gradient are compared with autograd over the whole sequence in one process, whose mask
is written here by distance.
"""

import sys

from megatron_hcp.proofs.program import Program

BOUND = 1e-12
CP, SIZES = 4, (2, 2)


def work(world, options):
    # Imported here, so that --help and "torch is not installed" work without torch.
    import torch.distributed as dist

    from megatron_hcp.proofs.te_cpu.case import COMMS
    from megatron_hcp.runtime.groups import GroupBuilder

    with GroupBuilder(world.timeout) as builder:
        levels = builder.build_levels([range(CP)], SIZES)
        for comm in COMMS:
            group = levels if comm == "a2a+p2p" else dist.group.WORLD
            for feature in ("window", "sinks"):
                world.expect_at_most(f"{comm} {feature}", largest(world, comm, group, feature), BOUND)


def largest(world, comm, group, feature):
    """The largest error of this case over all ranks."""
    import torch
    import torch.distributed as dist

    from megatron_hcp.proofs.dot_product_attention import DotProductAttention
    from megatron_hcp.proofs.te_cpu.case import WINDOW, AttentionCall, Inputs

    inputs = Inputs(AttentionCall(comm, "sbhd", "cuDNN", feature), CP)
    attention = DotProductAttention(
        inputs.heads,
        inputs.head_dim,
        window_size=WINDOW if feature == "window" else None,
        softmax_type="learnable" if feature == "sinks" else "vanilla",
    )
    attention.set_context_parallel_group(group, range(CP), None, comm)
    rows = inputs.rows_of(world.rank)
    leaves = [x[rows].requires_grad_() for x in (inputs.q, inputs.k, inputs.v)]
    if feature == "sinks":
        attention.softmax_offset.data = inputs.sinks.flatten()
    out = attention(*leaves)
    out.backward(inputs.dout[rows].flatten(2))
    found = [out.detach().unflatten(2, (inputs.heads, -1)), *(leaf.grad for leaf in leaves)]
    pairs = list(zip(found, (x[rows] for x in inputs.expected[:4])))
    if feature == "sinks":
        dist.all_reduce(attention.softmax_offset.grad)
        pairs.append((attention.softmax_offset.grad, inputs.expected[4].flatten()))
    worst = torch.stack([(ours - whole).abs().max() for ours, whole in pairs]).max()
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    return worst.item()


if __name__ == "__main__":
    sys.exit(Program("windows_and_sinks", __doc__, work, world_size=lambda options: CP, needs=("torch",)).main())
