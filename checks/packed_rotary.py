"""megatron-core rotates each token of a packed row by its position in its own sequence, whichever rank holds it.

The installed megatron-core's rotary embedding for thd runs on every rank's slices of packed sequences; the reference
turns the whole row in one process, by angles written here. Both kinds of tables: one for the longest sequence, and one
with an angle for each place of the row (positions that are not a line, as in vision models).
"""

import sys

from megatron_hcp.proofs.program import Program

BOUND = 1e-12
CP, HEAD_DIM = 4, 8
LENGTHS = (16, 8, 32)
"""Of the packed sequences, in tokens: multiples of 2 x CP."""


def work(world, options):
    # Imported here, so that --help and "torch is not installed" work without torch.
    import torch
    import torch.distributed as dist
    from megatron.core.models.common.embeddings.rope_utils import _apply_rotary_pos_emb_thd

    from megatron_hcp.core.shards import cu_seqlens_of, shard_thd_indices

    generator = torch.Generator().manual_seed(0)
    row = torch.randn(sum(LENGTHS), 2, HEAD_DIM, generator=generator, dtype=torch.float64)
    bounds = cu_seqlens_of(LENGTHS)
    rows = torch.tensor(shard_thd_indices(bounds, world.rank, CP))
    position = torch.cat([torch.arange(length) for length in LENGTHS])
    tables = {
        "by position": (angles(max(LENGTHS), generator), position),
        "by place": (angles(sum(LENGTHS), generator), torch.arange(sum(LENGTHS))),
    }
    for name, (table, of_token) in tables.items():
        found = _apply_rotary_pos_emb_thd(
            row[rows], torch.tensor(bounds, dtype=torch.int32), table[:, None, None], cp_group=dist.group.WORLD
        )
        worst = (found - turned(row, table[of_token])[rows]).abs().max()
        dist.all_reduce(worst, op=dist.ReduceOp.MAX)
        world.expect_at_most(f"angles {name}", worst.item(), BOUND)


def angles(count, generator):
    """[count, head_dim]: as megatron-core has them, the second half of a row repeats the first."""
    import torch

    return torch.rand(count, HEAD_DIM // 2, generator=generator, dtype=torch.float64).repeat(1, 2)


def turned(x, angle):
    """Each pair of channels (i, i + head_dim/2) turned by its angle."""
    import torch

    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


if __name__ == "__main__":
    sys.exit(
        Program("packed_rotary", __doc__, work, world_size=lambda options: CP, needs=("torch", "megatron.core")).main()
    )
