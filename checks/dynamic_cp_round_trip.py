"""A batch that dynamic CP splits, computes and merges gives the same outputs as one process, sample by sample.

Every rank holds the same TensorDict with jagged input_ids, computes the same plan, takes its share of each micro-batch
and runs it on the process group of the size that the plan chose. The losses of all tokens come back in the original
order, and equal those of a model that ran every sequence by itself. Groups of every size are built, checked against
the ranks that they should have, and used. A rank that merges a wrong output stops all of them, instead of leaving them
waiting.
"""

import sys
from itertools import pairwise

from megatron_hcp.proofs.program import Program

BOUND = 1e-12
MAX_SEQLEN = 12


def add_arguments(parser):
    parser.add_argument("--world-size", type=int, default=4, choices=(4, 8), help="default: %(default)s")


def work(world, options):
    # Imported here, so that --help and "torch is not installed" work without torch.
    from megatron_hcp.dcp import usable_sizes
    from megatron_hcp.proofs.dcp_toy import draw_corpus
    from megatron_hcp.runtime.groups import GroupBuilder, built_groups

    sizes = [size for size in usable_sizes(world.size, "main") if size > 1]
    longest = world.size * MAX_SEQLEN
    # One that needs all ranks, one that needs half of them, and short ones.
    corpus = draw_corpus([5, longest - 2 * world.size, 11, 7, longest // 2 - world.size, 12, 3, 9, 2, 10, 6, 8])
    with GroupBuilder(world.timeout) as builder:
        groups = builder.build_dynamic_cp([range(world.size)], sizes)
        for size in sizes:
            start = world.rank // size * size
            found = built_groups()[f"DYNAMIC_DP_CP_GROUP_{size}"]
            world.expect(
                f"the group of {size} has the ranks that it should have",
                found == [list(range(start, start + size))],
                str(found),
            )
        if not are_all_well(world):
            return  # ranks that disagree on their groups would wait for each other
        for policy in ("balanced", "pr5869"):
            round_trip(world, corpus, groups, policy, sizes)
    refusals(world)


def are_all_well(world):
    import torch.distributed as dist

    everyone = [None] * world.size
    dist.all_gather_object(everyone, all(result.ok for result in world.results))
    return all(everyone)


def round_trip(world, corpus, groups, policy, sizes):
    import torch
    from tensordict import NonTensorStack, TensorDict

    from megatron_hcp.proofs.dcp_toy import ToyModel, pack
    from megatron_hcp.runtime.dcp_split import merge_outputs, plan_for, split_batch

    ids = torch.nested.nested_tensor(corpus.tokens, layout=torch.jagged)
    batch = TensorDict({"input_ids": ids, "place": torch.arange(len(corpus.tokens))}, batch_size=[len(corpus.tokens)])
    batch["name"] = NonTensorStack(*[f"sample {index}" for index in range(len(corpus.tokens))])
    model = ToyModel(max(corpus.lengths))
    plan = plan_for(batch, world.size, MAX_SEQLEN, policy=policy, groups="main")
    shares = split_batch(batch, plan, world.rank)
    outputs, agree = [], True
    with torch.no_grad():
        for share in shares:
            samples, size, cp_rank = share["sample_ids"], share["local_cp_size"], share["cp_rank"]
            packed = pack(corpus, samples, size, cp_rank)
            agree &= torch.equal(share["padding_mask"], packed.places.sequence < 0)
            agree &= share["place"].tolist() == samples == [int(name.split()[1]) for name in share["name"]]
            losses = model(packed, groups[size] if size > 1 else None)
            outputs.append((share, {"loss": per_sample(losses, packed, size, groups), "place": share["place"]}))
        merged = merge_outputs(outputs, len(corpus.tokens))
        alone = [model(pack(corpus, [sample], 1, 0), None) for sample in range(len(corpus.tokens))]
    error = max(
        (found - wanted).abs().max().item() if found.shape == wanted.shape else float("inf")
        for found, wanted in zip(merged["loss"].unbind(), alone)
    )
    widths = sorted({group.local_cp_size for micro_batch in plan.micro_batches for group in micro_batch.groups})
    world.expect(f"{policy}: shares hold their own samples, and the padding where it lies", agree)
    world.expect_at_most(
        f"{policy}: losses equal those of one process",
        error,
        BOUND,
        f"{len(plan.micro_batches)} micro-batches, groups of {widths}",
    )
    world.expect(f"{policy}: samples are in their places", merged["place"].tolist() == list(range(len(corpus.tokens))))
    if policy == "balanced":
        used: list[set[int]] = [set()] * world.size
        import torch.distributed as dist

        dist.all_gather_object(used, {share["local_cp_size"] for share in shares})
        wanted = {1, sizes[-1]}
        world.expect("narrow and wide groups were used", wanted <= set.union(*used), str(sorted(set.union(*used))))
    for size in sizes:
        total = torch.ones(()) * world.rank
        torch.distributed.all_reduce(total, group=groups[size])
        start = world.rank // size * size
        world.expect(
            f"{policy}: the group of {size} adds up over its ranks", total.item() == sum(range(start, start + size))
        )


def per_sample(losses, packed, size, groups):
    """The losses of the group's sequences as a jagged tensor: gathered, unpadded, in order."""
    import torch

    from megatron_hcp.runtime.dcp_loss import gather_rows
    from megatron_hcp.runtime.shards import unshard

    rows = gather_rows(losses, groups[size] if size > 1 else None, "detached")
    padded = packed.batch.cu_seqlens_padded
    whole = unshard(rows.chunk(size), "thd", padded)
    lengths = [end - start for start, end in pairwise(packed.batch.cu_seqlens)]
    return torch.nested.nested_tensor(
        [whole[start : start + length] for start, length in zip(padded, lengths)], layout=torch.jagged
    )


def refusals(world):
    """An error on one rank stops every rank."""
    import torch

    from megatron_hcp.ground.errors import HcpError
    from megatron_hcp.runtime.dcp_split import merge_outputs

    share = {"sample_ids": [world.rank], "cp_rank": 0}
    for name, samples, rows in (
        ("one entry too many", world.size, 2 if world.rank == 1 else 1),
        ("a sample that nobody has", world.size + 1, 1),
    ):
        try:
            merge_outputs([(share, {"x": torch.zeros(rows)})], samples)
            said = ""
        except HcpError as error:
            said = str(error)
        world.expect(f"{name} is refused on every rank", bool(said), said)


if __name__ == "__main__":
    sys.exit(
        Program(
            "dynamic_cp_round_trip",
            __doc__,
            work,
            world_size=lambda options: options.world_size,
            needs=("torch", "tensordict"),
            add_arguments=add_arguments,
        ).main()
    )
