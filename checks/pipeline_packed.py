"""Pipeline stages that do not know where packed sequences start: attention silently crosses the boundaries.

Four pipeline stages of one attention layer each train on a packed row, over gloo. Every stage needs the boundaries of
the sequences; without them, attention treats the row as one sequence. Megatron-Bridge up to 0.3 passes them only to
the first and last stage (NVIDIA-NeMo/Megatron-Bridge#2952: 10 to 20 points lost in evaluation, nothing in the log).

1. With boundaries on every stage, outputs and gradients equal those of one process, and a token of the first sequence
   changes only the first sequence.
2. Without them on the middle stages, shapes and losses look the same, but the token changes the other sequences too.
3. What to assert: every stage with attention has the boundaries. The assertion names the middle stages.
"""

import sys

from megatron_hcp.proofs.program import Program

BOUND = 1e-10
STAGES, HEADS, HEAD_DIM = 4, 2, 8
LENGTHS = (12, 20, 8)


def work(world, options):
    # Imported here, so that --help and "torch is not installed" work without torch.
    every, ends = list(range(STAGES)), [0, STAGES - 1]
    expected = alone()
    for name, told in (("boundaries on every stage", every), ("boundaries on the first and last stage", ends)):
        out, gradient = train(world, told)
        error = distance(out, expected[0]) if world.rank == STAGES - 1 else 0.0
        leaks = share(world, leaking(world, told))
        without = share(world, [rank for rank in [world.rank] if boundaries_of(rank, told) is None])
        off = distance(gradient, expected[1][world.rank])
        if told == every:
            world.expect_at_most(f"{name}: the output is that of one process", error, BOUND)
            world.expect_at_most(f"{name}: and so is each stage's gradient", off, BOUND)
            world.expect(f"{name}: a token changes its own sequence alone", leaks == [0], f"sequences {leaks}")
            world.expect(f"{name}: the assertion passes", not without, f"stages {without}")
        else:
            world.expect(f"{name}: the gradient is another one", off > 1e-3, f"off by {off:.1e}")
            world.expect(f"{name}: a token changes the others", leaks == [0, 1, 2], f"sequences {leaks}")
            world.expect(f"{name}: the assertion names the middle stages", without == [1, 2], f"stages {without}")


def stage(number):
    """One attention layer with weights of its own, the same in every process."""
    import torch

    torch.manual_seed(number + 1)
    return torch.nn.Linear(HEADS * HEAD_DIM, 3 * HEADS * HEAD_DIM).double()


def boundaries_of(number, told):
    """cu_seqlens as a stage receives them; None if they are not passed on."""
    import torch

    from megatron_hcp.core.shards import cu_seqlens_of

    return torch.tensor(cu_seqlens_of(LENGTHS), dtype=torch.int32) if number in told else None


def forward(layer, x, cu_seqlens):
    """x + attention(x): packed with boundaries, otherwise the row as one causal sequence. x is [tokens, hidden]."""
    from megatron_hcp.proofs.dot_product_attention import DotProductAttention

    q, k, v = (part.unflatten(1, (HEADS, HEAD_DIM)) for part in layer(x).chunk(3, dim=1))
    if cu_seqlens is not None:
        attention = DotProductAttention(HEADS, HEAD_DIM, qkv_format="thd", attn_mask_type="padding_causal")
        return x + attention(q, k, v, cu_seqlens_q=cu_seqlens)
    attention = DotProductAttention(HEADS, HEAD_DIM, qkv_format="sbhd", attn_mask_type="causal")
    return x + attention(*(part.unsqueeze(1) for part in (q, k, v))).squeeze(1)


def inputs(changed=False):
    import torch

    torch.manual_seed(0)
    x = torch.randn(sum(LENGTHS), HEADS * HEAD_DIM, dtype=torch.float64)
    if changed:
        x[3] += 1.0  # a token of the first sequence
    return x


def gradient_of(layer):
    return layer.weight.grad.clone()


def alone():
    """The output and each stage's gradient, in one process with boundaries everywhere."""
    layers = [stage(number) for number in range(STAGES)]
    x = inputs()
    for number, layer in enumerate(layers):
        x = forward(layer, x, boundaries_of(number, range(STAGES)))
    x.square().mean().backward()
    return x.detach(), [gradient_of(layer) for layer in layers]


def train(world, told):
    """One forward and backward of the pipeline: (this stage's output, its gradient)."""
    import torch
    import torch.distributed as dist

    layer = stage(world.rank)
    x = inputs()
    if world.rank > 0:
        dist.recv(x, world.rank - 1)
    x.requires_grad_()
    out = forward(layer, x, boundaries_of(world.rank, told))
    if world.rank < STAGES - 1:
        dist.send(out.detach().contiguous(), world.rank + 1)
        gradient = torch.empty_like(out)
        dist.recv(gradient, world.rank + 1)
        out.backward(gradient)
    else:
        out.square().mean().backward()
    if world.rank > 0:
        dist.send(x.grad.contiguous(), world.rank - 1)
    return out.detach(), gradient_of(layer)


def leaking(world, told):
    """The sequences whose output changes with a token of the first one; known on the last stage."""
    import torch
    import torch.distributed as dist

    outs = []
    for changed in (False, True):
        x = inputs(changed)
        if world.rank > 0:
            dist.recv(x, world.rank - 1)
        with torch.no_grad():
            out = forward(stage(world.rank), x, boundaries_of(world.rank, told))
        if world.rank < STAGES - 1:
            dist.send(out.contiguous(), world.rank + 1)
        outs.append(out)
    if world.rank < STAGES - 1:
        return []
    moved = (outs[0] != outs[1]).any(dim=1).split(LENGTHS)
    return [number for number, rows in enumerate(moved) if bool(rows.any())]


def share(world, mine):
    """All ranks' values, in rank order."""
    import torch.distributed as dist

    everyone: list = [None] * world.size
    dist.all_gather_object(everyone, mine)
    return sorted({item for items in everyone for item in items})


def distance(found, expected):
    return ((found - expected).norm() / expected.norm()).item()


if __name__ == "__main__":
    sys.exit(Program("pipeline_packed", __doc__, work, world_size=lambda options: STAGES, needs=("torch",)).main())
