"""Under dynamic CP, a step's gradient is that of the mean over its tokens, if the loss is weighted correctly.

A small packed model with context-parallel attention trains one step under torch's DistributedDataParallel, in float64,
on process groups of every size. W ranks; C ranks in a group, D groups in a micro-batch, T loss tokens in the whole
step, N the loss sum of a group. The reference is the gradient of the sum of all N over T, in one process.

The right factors reproduce it to 1e-12, for constant C, for C that changes from one micro-batch to the next, and for
unequal groups side by side. Each wrong one that has been published or proposed is run too, and must be wrong by
exactly what arithmetic says: a gradient that is another combination of the groups' gradients. Where all groups have
one weight that is a ratio (D/W for pull request verl#5869, 1/W^2 for verl 0.8.0); else also the direction is wrong.
"""

import sys
from typing import Literal

from megatron_hcp.proofs.program import Program

BOUND = 1e-12
LAYOUTS = {
    4: {
        "C 1": [[1, 1, 1, 1]],
        "C 2": [[2, 2]],
        "C 4": [[4]],
        "C 1, 4, 2 in turn": [[1, 1, 1, 1], [4], [2, 2]],
        "C 2, 1, 1 side by side": [[2, 1, 1]],
    },
    8: {"C 8": [[8]], "C 1, 8, 2 in turn": [[1] * 8, [8], [2] * 4], "C 4, 2, 1, 1 side by side": [[4, 2, 1, 1]]},
}


def add_arguments(parser):
    parser.add_argument("--world-size", type=int, default=4, choices=sorted(LAYOUTS), help="default: %(default)s")
    parser.add_argument(
        "--layouts",
        nargs="+",
        metavar="NAME",
        choices=sorted({name for shapes in LAYOUTS.values() for name in shapes}),
        help="only these, such as 'C 2' (default: all of the world size)",
    )


def work(world, options):
    # Imported here, so that --help and "torch is not installed" work without torch.
    from megatron_hcp.dcp import usable_sizes
    from megatron_hcp.proofs.dcp_step import Trainer
    from megatron_hcp.proofs.dcp_toy import draw_corpus
    from megatron_hcp.runtime.groups import GroupBuilder

    sizes = [size for size in usable_sizes(world.size, "main") if size > 1]
    corpus = draw_corpus([11, 4, 23, 7, 16, 5, 9, 30, 6, 13, 8, 12, 5, 14, 10, 3])
    with GroupBuilder(world.timeout) as builder:
        trainer = Trainer(corpus, builder.build_dynamic_cp([range(world.size)], sizes))
        for name, shape in LAYOUTS[world.size].items():
            if options.layouts and name not in options.layouts:
                continue
            compare(world, trainer, name, micro_batches_of(shape, len(corpus.lengths)))
        by_sequence = Trainer(corpus, trainer.groups, "sequences")
        compare_by_sequence(world, by_sequence, micro_batches_of(shape, len(corpus.lengths)))


def compare_by_sequence(world, trainer, micro_batches):
    """The factors do not depend on the loss: one that is not linear in the tokens, exp of a sequence's mean."""
    import torch

    from megatron_hcp.proofs.dcp_step import gradient_alone

    corpus, right = trainer.corpus, right_weighings()
    parts = [gradient_alone(corpus, group.samples, "sequences") for batch in micro_batches for group in batch.groups]
    reference = torch.stack(parts).sum(0) / corpus.num_loss_tokens
    for name in ("mean, detached, W/T", "mean, autograd, (W/C)/T", "mean, replicated, (W/C)/T", "sum, detached, 1/T"):
        found = trainer.step(micro_batches, right[name]).gradient
        world.expect_at_most(f"a loss of sequences: {name}", relative(found, reference), BOUND)


def micro_batches_of(shape, num_samples):
    """Groups of the given sizes, micro-batch by micro-batch, with the samples distributed round-robin."""
    from megatron_hcp.dcp import Group, MicroBatch

    slots = [(index, size) for index, sizes in enumerate(shape) for size in sizes]
    made: list[list[Group]] = [[] for _ in shape]
    for slot, (index, size) in enumerate(slots):
        start = sum(group.local_cp_size for group in made[index])
        made[index].append(Group(start, size, tuple(range(slot, num_samples, len(slots)))))
    return [MicroBatch(tuple(groups)) for groups in made]


def compare(world, trainer, layout, micro_batches):
    import torch

    from megatron_hcp.proofs.dcp_step import WeighingContext, gradient_alone, loss_sum_alone

    corpus = trainer.corpus
    groups = [(batch, group) for batch in micro_batches for group in batch.groups]
    parts = [gradient_alone(corpus, group.samples) for _, group in groups]
    reference = torch.stack(parts).sum(0) / corpus.num_loss_tokens
    loss = sum(loss_sum_alone(corpus, group.samples) for _, group in groups) / corpus.num_loss_tokens
    for name, weighing in right_weighings().items():
        found = trainer.step(micro_batches, weighing)
        world.expect_at_most(f"{layout}: {name}", relative(found.gradient, reference), BOUND)
    for name, weighing in wrong_weighings().items():
        coefficients = [coefficient(weighing, WeighingContext(batch, group.start, corpus)) for batch, group in groups]
        predicted = sum(c * part for c, part in zip(coefficients, parts))
        found = trainer.step(micro_batches, weighing).gradient
        error = relative(found, predicted)
        weights = [c * corpus.num_loss_tokens for c in coefficients]
        ratio, cos = project(found, reference)
        if spread(weights):
            says = "weighs groups unequally"
            error = error if cos < 1 - 1e-6 else float("nan")  # the direction must then be wrong too
        else:
            says = f"is {weights[0]:.6g} of the gradient"
            error = max(error, abs(ratio - weights[0]))
        world.expect_at_most(f"{layout}: {name} {says}", error, BOUND, f"ratio {ratio:.4g}, cos {cos:.4f}")
    report(world, trainer, layout, micro_batches, loss)


def report(world, trainer, layout, micro_batches, loss):
    """The value that a log shows: duplicated C times in every mode, so its factor is not that of the gradient."""
    import torch

    from megatron_hcp.proofs.dcp_step import Weighing, loss_sum_alone
    from megatron_hcp.runtime.dcp_loss import loss_for_report, weights_of_rank

    corpus = trainer.corpus

    def right(c):
        one = torch.ones((), dtype=torch.float64)
        return loss_for_report(one, weights_of_rank(c.micro_batch, c.rank), c.loss_tokens).item()

    with_c = trainer.step(micro_batches, Weighing(right)).reported
    world.expect_at_most(f"{layout}: reported with W/C", abs(with_c / loss - 1), BOUND)
    with_w = trainer.step(micro_batches, Weighing(lambda c: c.world_size / c.loss_tokens)).reported
    predicted = (
        sum(
            group.local_cp_size * loss_sum_alone(corpus, group.samples)
            for batch in micro_batches
            for group in batch.groups
        )
        / corpus.num_loss_tokens
    )
    world.expect_at_most(
        f"{layout}: reported with W is as wrong as predicted",
        abs(with_w / predicted - 1),
        BOUND,
        f"{with_w / loss:.4g} of the loss",
    )


def right_weighings():
    """What megatron_hcp.runtime.dcp_loss computes from a loss sum, for each way of reducing and gathering."""
    import torch

    from megatron_hcp.proofs.dcp_step import Weighing
    from megatron_hcp.runtime.dcp_loss import Gather, loss_for_backward, per_token_loss, weights_of_rank

    one = torch.ones((), dtype=torch.float64)

    def backward(**how):
        def factor(c):
            return loss_for_backward(one, weights_of_rank(c.micro_batch, c.rank, **how), c.loss_tokens).item()

        return factor

    def per_token(c):
        return per_token_loss(
            one,
            weights_of_rank(c.micro_batch, c.rank),
            loss_tokens=c.loss_tokens,
            real_tokens=c.real_tokens,
            local_real_tokens=c.local_real_tokens,
        )

    ways: list[tuple[Literal["mean", "sum"], Gather, str]] = [
        ("mean", "detached", "W/T"),
        ("mean", "autograd", "(W/C)/T"),
        ("mean", "replicated", "(W/C)/T"),
        ("sum", "detached", "1/T"),
        ("sum", "autograd", "(1/C)/T"),
        ("sum", "replicated", "(1/C)/T"),
    ]
    weighings = {
        f"{reduction}, {gather}, {factor}": Weighing(backward(reduction=reduction, gather=gather), gather, reduction)
        for reduction, gather, factor in ways
    }
    return weighings | {
        "sum, detached, R/T, divided by all real tokens (verl 0.9)": Weighing(
            lambda c: per_token(c)[0].item(), "detached", "sum", lambda c: int(per_token(c)[1])
        ),
        "sum, not gathered, 1, divided by all loss tokens (megatron-core)": Weighing(
            lambda c: 1.0, "none", "sum", lambda c: c.local_loss_tokens
        ),
    }


def wrong_weighings():
    """Factors that were published or proposed, each wrong in some case; if one happens to be right, its ratio is 1."""
    from megatron_hcp.proofs.dcp_step import Weighing

    return {
        "mean, detached, D/T (verl#5869)": Weighing(lambda c: c.num_groups / c.loss_tokens),
        "mean, detached, 1/T": Weighing(lambda c: 1 / c.loss_tokens),
        "mean, detached, 1/(W T) (verl 0.8.0)": Weighing(lambda c: 1 / (c.world_size * c.loss_tokens)),
        "mean, detached, W/(W T)": Weighing(lambda c: c.world_size / (c.world_size * c.loss_tokens)),
        "mean, detached, D/(W T)": Weighing(lambda c: c.num_groups / (c.world_size * c.loss_tokens)),
        "mean, detached, 1/T of the group": Weighing(lambda c: 1 / c.group_loss_tokens),
        "sum, detached, D/T": Weighing(lambda c: c.num_groups / c.loss_tokens, reduction="sum"),
        "mean, autograd, D/T": Weighing(lambda c: c.num_groups / c.loss_tokens, "autograd"),
        "mean, autograd, W/T": Weighing(lambda c: c.world_size / c.loss_tokens, "autograd"),
        "mean, replicated, W/T": Weighing(lambda c: c.world_size / c.loss_tokens, "replicated"),
    }


def coefficient(weighing, context):
    """The weight of a group's gradient in what DDP delivers, by arithmetic: no model, no process."""
    copies = context.local_cp_size if weighing.gather in ("autograd", "replicated") else 1
    share = 1 / context.world_size if weighing.reduction == "mean" else 1
    return weighing.factor(context) * copies * share


def spread(weights):
    return max(weights) - min(weights) > 1e-9 * max(weights)


def relative(found, wanted):
    return ((found - wanted).norm() / wanted.norm()).item()


def project(found, reference):
    """(the ratio along the reference, the cosine)."""
    inner = found @ reference
    return (inner / (reference @ reference)).item(), (inner / found.norm() / reference.norm()).item()


if __name__ == "__main__":
    sys.exit(
        Program(
            "dynamic_cp_loss",
            __doc__,
            work,
            world_size=lambda options: options.world_size,
            needs=("torch", "tensordict"),
            add_arguments=add_arguments,
        ).main()
    )
