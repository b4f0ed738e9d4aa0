"""Mamba under context parallelism scans whole rows in their order, with a part of the heads; nothing else is right.

The installed megatron-core's MambaContextParallel exchanges tensors over all ranks, which hold the tokens as attention
wants them, in chunks i and 2 CP - 1 - i. Each rank must get every token in order, its own heads, and their groups, both
where groups are split over the ranks and where they are copied. A recurrence over these rows, sent back, is the one of
a single process; a recurrence over a rank's own tokens is not, without an error.
"""

import sys

from megatron_hcp.proofs.program import Program

BOUND = 1e-12
CP, TOKENS, HEADS, HEAD_DIM, STATE = 4, 32, 8, 3, 5


def work(world, options):
    # Imported here, so that --help and "torch is not installed" work without torch.
    import torch
    import torch.distributed as dist

    from megatron_hcp.core.shards import shard_indices

    own = shard_indices(TOKENS, world.rank, CP)
    generator = torch.Generator().manual_seed(0)
    for groups in (2, 8):
        widths = (HEADS * HEAD_DIM, HEADS * HEAD_DIM, groups * STATE, groups * STATE, HEADS)
        row = torch.randn(TOKENS, 1, sum(widths), generator=generator, dtype=torch.float64)
        mixer = exchange(HEADS, groups)
        found = mixer.pre_conv_ssm(row[own])
        z, x, b, c, dt = row.split(widths, dim=-1)
        first, count = world.rank * groups // CP, max(1, groups // CP)
        states = [torch.cat(part.split(STATE, dim=-1)[first : first + count], dim=-1) for part in (b, c)]
        z, mine, dt = (part.chunk(CP, dim=-1)[world.rank] for part in (z, x, dt))
        wanted = torch.cat([z, mine, *states, dt], dim=-1)
        label = f"{groups} groups"
        same = found.shape == wanted.shape
        world.expect_at_most(f"{label}: whole rows in order", largest(found - wanted) if same else 1.0, BOUND)
        got = found[..., z.shape[-1] : 2 * z.shape[-1]]
        back = mixer.post_conv_ssm(recurrence(got))
        world.expect_at_most(f"{label}: recurrence of one process", largest(back - recurrence(x)[own]), BOUND)
        apart = largest(recurrence(x[own]) - recurrence(x)[own])
        world.expect(f"{label}: a rank's own tokens alone are wrong", apart > 0.1, f"{apart:.2g}")
    for heads, groups, text in ((6, 2, "nheads must be evenly"), (8, 3, "evenly divisible by ngroups/tp_size")):
        try:
            exchange(heads, groups)
        except AssertionError as error:
            world.expect(f"{heads} heads, {groups} groups: refused", text in str(error), str(error))
        else:
            world.expect(f"{heads} heads, {groups} groups: refused", False, "accepted")
    dist.barrier()


def exchange(heads, groups):
    """megatron-core's own, over all ranks; the weights of the mixer are not used."""
    import torch.distributed as dist
    from megatron.core.ssm.mamba_context_parallel import MambaContextParallel

    sizes = {"d_inner_local_tp": heads * HEAD_DIM, "nheads_local_tp": heads, "ngroups_local_tp": groups}
    weights = dict.fromkeys(("conv1d_cp1", "dt_bias_cp1", "A_log_cp1", "D_cp1"))
    return MambaContextParallel(dist.group.WORLD, **sizes, d_state=STATE, **weights, D_has_hdim=False)


def recurrence(x):
    """[tokens, batch, channels]: each token's state is nine tenths of the one before it, plus its input."""
    import torch

    states = [x[0]]
    for token in x[1:]:
        states.append(0.9 * states[-1] + token)
    return torch.stack(states)


def largest(difference):
    """The largest difference of any rank."""
    import torch.distributed as dist

    worst = difference.abs().max()
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    return worst.item()


if __name__ == "__main__":
    sys.exit(
        Program(
            "mamba_exchange", __doc__, work, world_size=lambda options: CP, needs=("torch", "megatron.core", "einops")
        ).main()
    )
