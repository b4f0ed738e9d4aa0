"""A negative control: context parallelism that is silently off (HCP001) must be detected, three ways.

A GPTModel of the installed megatron-core is configured with cp_comm_type a2a+p2p on 4 CP ranks and built twice: with
hierarchical_context_parallel_sizes [2, 2], and without, as if a user forgot them. Neither case raises an error.

1. The probe: assert_hcp_active(model) names HCP001, and passes the healthy model.
2. Token 0 is changed: with causal attention, the logits on every CP rank must change. With CP off, only those of rank 0
   do, which holds the first and, under zigzag, the last chunk.
3. Parity: the logits equal those of CP 1 on the healthy model, but not on the broken one.

Each --te-source adds what that Transformer Engine version would decide from the modules' cp_group, run from its source.
"""

import sys
from pathlib import Path

from megatron_hcp.proofs.program import Program

BOUND = 1e-10
CP, SIZES = 4, [2, 2]


def add_arguments(parser):
    parser.add_argument(
        "--te-source",
        nargs="+",
        type=Path,
        default=[],
        metavar="FOLDER",
        help="unpacked transformer-engine wheels (default: the installed one, if any)",
    )


def work(world, options):
    # Imported here, so that --help and "torch is not installed" work without torch.
    from megatron_hcp.proofs.gpt import build_hcp_gpt, logits_of
    from megatron_hcp.proofs.gpt_data import GptShape, global_batch
    from megatron_hcp.proofs.megatron import cpu_megatron, model_parallel
    from megatron_hcp.proofs.te_rule import installed_te, load_te_rule

    sources = options.te_source or [path for path in [installed_te()] if path]
    te_rules = {path.name: load_te_rule(path) for path in sources}
    shape = GptShape()
    batch = global_batch(shape, 0, world.device)
    with cpu_megatron():
        with model_parallel(cp=1):
            expected = logits_of(build_hcp_gpt(shape, world.device, cp=1, sizes=None), batch)
        for sizes in (SIZES, None):
            with model_parallel(cp=CP, hcp_sizes=sizes, timeout=world.timeout):
                examine(world, build_hcp_gpt(shape, world.device, cp=CP, sizes=sizes), sizes, batch, expected, te_rules)


def examine(world, model, sizes, batch, expected, te_rules):
    from megatron_hcp.proofs.gpt import core_attentions, logits_error, logits_of
    from megatron_hcp.runtime.active import hcp_problem

    said = hcp_problem(model)
    logits = logits_of(model, batch)
    reached = ranks_where(world, (logits != logits_of(model, with_other_token_0(batch))).any())
    error = logits_error(logits, expected)
    if sizes:
        state, decision = f"with sizes {sizes}", (CP, True)
        world.expect(f"{state}: the probe passes", said is None, said or "")
        world.expect(f"{state}: changing token 0 reaches every rank", reached == list(range(CP)), f"ranks {reached}")
        world.expect_at_most(f"{state}: logits equal those of CP 1", error, BOUND)
    else:
        state, decision = "without sizes", (1, False)
        world.expect(f"{state}: the probe names HCP001", "HCP001" in (said or ""), said or "it passed")
        world.expect(f"{state}: changing token 0 reaches rank 0 only", reached == [0], f"ranks {reached}")
        world.expect(f"{state}: logits differ from those of CP 1", error > 1e-3, f"by {error:.1e}")
    for name, rule in te_rules.items():
        decisions = {rule(attention) for attention in core_attentions(model)}
        world.expect(
            f"{state}: {name} takes cp_size {decision[0]}, context_parallel {decision[1]}",
            decisions == {decision},
            str(decisions),
        )


def with_other_token_0(batch):
    from megatron_hcp.proofs.gpt_data import VOCAB_SIZE

    tokens = batch["tokens"].clone()
    tokens[:, 0] = (tokens[:, 0] + 1) % VOCAB_SIZE
    return {**batch, "tokens": tokens}


def ranks_where(world, condition):
    import torch.distributed as dist

    conditions = [None] * world.size
    dist.all_gather_object(conditions, bool(condition))
    return [rank for rank, holds in enumerate(conditions) if holds]


if __name__ == "__main__":
    sys.exit(
        Program(
            "silent_cp_loss",
            __doc__,
            work,
            world_size=lambda options: CP,
            needs=("torch", "megatron.core", "einops"),
            add_arguments=add_arguments,
        ).main()
    )
