"""Packed sequences whose lengths do not divide: tokens that reach no rank, tokens that reach two, and the fix.

A row of sequences is split over the ranks as in Transformer Engine's kernel, which uses integer division and checks
only the total. A small model under torch's DistributedDataParallel trains one step on what each rank got, in float64;
the reference is the gradient over the whole row in one process.

1. Without padding, some tokens are lost and others duplicated. No error occurs, because each rank has the right number.
2. The gradient is wrong by exactly those tokens: a lost one does not count, a duplicated one counts twice.
3. With each sequence padded to 2 x cp (tp x cp too, under sequence parallelism), every token counts once.
"""

import sys

from megatron_hcp.proofs.program import Program

BOUND = 1e-12
CP, LENGTHS = 4, (12, 21, 7, 24)
HIDDEN = 8


def work(world, options):
    # Imported here, so that --help and "torch is not installed" work without torch.
    from megatron_hcp.core.packing import misplaced, pack_row
    from megatron_hcp.core.shards import pad_multiple

    uneven = pack_row(LENGTHS)
    assert uneven.cu_seqlens[-1] % (2 * CP) == 0, "the total divides, or Transformer Engine would say so"
    found = train(world, uneven)
    by_arithmetic = misplaced(uneven.cu_seqlens, CP)
    state = f"lengths {', '.join(map(str, LENGTHS))} at cp {CP}"
    world.expect(
        f"{state}: tokens are lost",
        bool(found.lost) and found.lost == by_arithmetic.lost,
        f"{found.lost}, by arithmetic {by_arithmetic.lost}",
    )
    world.expect(
        f"{state}: others are doubled",
        bool(found.doubled) and found.doubled == by_arithmetic.doubled,
        f"{found.doubled}, by arithmetic {by_arithmetic.doubled}",
    )
    world.expect(f"{state}: every rank has its share of rows", found.held == sum(LENGTHS) // CP, f"{found.held} rows")
    world.expect(f"{state}: the gradient is not that of the row", found.error > 1e-3, f"off by {found.error:.1e}")
    world.expect_at_most(f"{state}: it is that of the tokens that came, twice where doubled", found.of_counts, BOUND)
    cured = train(world, pack_row(LENGTHS, pad_multiple(CP)))
    state = f"padded to {pad_multiple(CP)}"
    world.expect(f"{state}: no token is lost or doubled", not cured.lost and not cured.doubled)
    world.expect_at_most(f"{state}: the gradient is that of the row", cured.error, BOUND)


class Trained:
    """The result for a row: how often each real token was trained on, and the gradient's error."""

    def __init__(self, counts, held, error, of_counts):
        self.lost = [token for token, times in enumerate(counts) if times == 0]
        self.doubled = [token for token, times in enumerate(counts) if times > 1]
        self.held, self.error, self.of_counts = held, error, of_counts


def train(world, row):
    """One step on a row under DDP, against one process."""
    import torch
    import torch.distributed as dist

    from megatron_hcp.core.packing import lengths_of, partition_as_compiled

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, 1)).double()
    features = torch.randn(sum(LENGTHS), HIDDEN, dtype=torch.float64)
    # Which real token lies at each place of the row; -1 is padding.
    places, token = [], 0
    for length, padded in zip(LENGTHS, lengths_of(row.cu_seqlens_padded), strict=True):
        places += [*range(token, token + length), *[-1] * (padded - length)]
        token += length
    rows = partition_as_compiled(row.cu_seqlens_padded, len(places), world.rank, world.size)
    mine = torch.tensor([places[index] for index in rows if places[index] >= 0])
    counts = torch.bincount(mine, minlength=len(features))
    dist.all_reduce(counts)
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    # DDP takes the mean over ranks, so each rank's sum over its tokens is weighed by their number.
    (world.size * ddp(features[mine]).sum() / len(features)).backward()
    gradient = gradient_of(model)
    whole = gradient_of(model, features, torch.ones(len(features), dtype=torch.float64))
    counted = gradient_of(model, features, counts.double())
    return Trained(counts.tolist(), len(rows), relative(gradient, whole), relative(gradient, counted))


def gradient_of(model, features=None, weights=None):
    """All gradients in one vector; with features, those of the mean over tokens with these weights."""
    import torch

    if features is not None:
        model.zero_grad()
        ((model(features)[:, 0] * weights).sum() / len(features)).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).clone()


def relative(found, expected):
    return ((found - expected).norm() / expected.norm()).item()


if __name__ == "__main__":
    sys.exit(Program("packed_tokens", __doc__, work, world_size=lambda options: CP, needs=("torch",)).main())
