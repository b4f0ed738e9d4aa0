"""A negative control: hierarchical groups only in a ProcessGroupCollection do not reach attention (HCP012).

The groups of 4 CP ranks come from megatron-core's own HyperCommGrid, including the inner and outer level, and are
passed to GPTModel as pg_collection; megatron-core's global state is not initialized, as in decentralized set-ups. The
config has the sizes. Even so, no attention module gets groups, because upstream takes the hierarchical ones only from
the global state. This must be detected: by the probe, and by logits that differ from those of CP 1.

The workaround is shown too: after set_context_parallel_group on every core attention, everything holds.
"""

import sys

from megatron_hcp.proofs.program import Program

BOUND = 1e-10
CP, SIZES = 4, [2, 2]


def work(world, options):
    # Imported here, so that --help and "torch is not installed" work without torch.
    import torch.distributed as dist

    from megatron_hcp.proofs.gpt import build_hcp_gpt, core_attentions, logits_error, logits_of
    from megatron_hcp.proofs.gpt_data import GptShape, global_batch
    from megatron_hcp.proofs.megatron import cpu_megatron, model_parallel
    from megatron_hcp.runtime.active import hcp_problem

    shape = GptShape()
    batch = global_batch(shape, 0, world.device)
    with cpu_megatron():
        with model_parallel(cp=1):
            expected = logits_of(build_hcp_gpt(shape, world.device, cp=1, sizes=None), batch)

        groups = decentralized_groups()
        members = [dist.get_process_group_ranks(group) for group in groups.hcp]
        world.expect("the collection has the levels", [len(ranks) for ranks in members] == SIZES, f"{members}")
        model = build_hcp_gpt(shape, world.device, cp=CP, sizes=SIZES, pg_collection=groups)
        held = [attention.cp_group for attention in core_attentions(model)]
        world.expect("megatron-core does not hand them to the attention", held == [None, None], f"cp_group {held}")
        said = hcp_problem(model)
        world.expect("the probe names HCP012", "HCP012" in (said or ""), said or "it passed")
        error = logits_error(logits_of(model, batch, groups.cp), expected, groups.cp)
        world.expect("logits differ from those of CP 1", error > 1e-3, f"by {error:.1e}")

        for attention in core_attentions(model):
            attention.set_context_parallel_group(groups.hcp, dist.get_process_group_ranks(groups.cp), None, "a2a+p2p")
        said = hcp_problem(model)
        world.expect("after set_context_parallel_group the probe passes", said is None, said or "")
        error = logits_error(logits_of(model, batch, groups.cp), expected, groups.cp)
        world.expect_at_most("after set_context_parallel_group logits equal those of CP 1", error, BOUND)


def decentralized_groups():
    """TP 1, CP 4 in two levels, PP 1, DP 1: the collection that a GPTModel needs. Collective."""
    from megatron.core.hyper_comm_grid import HyperCommGrid
    from megatron.core.process_groups_config import ProcessGroupCollection

    grid = HyperCommGrid([1, *SIZES, 1, 1], ["tp", "inner", "outer", "pp", "dp"], backend="gloo")
    groups = ProcessGroupCollection()
    groups.tp, groups.pp = grid.create_pg("tp"), grid.create_pg("pp")
    groups.cp = grid.create_pg(["inner", "outer"])
    groups.hcp = [grid.create_pg("inner"), grid.create_pg("outer")]
    groups.embd = groups.pos_embd = None
    return groups


if __name__ == "__main__":
    sys.exit(
        Program(
            "decentralized_collection",
            __doc__,
            work,
            world_size=lambda options: CP,
            needs=("torch", "megatron.core", "einops"),
        ).main()
    )
