"""A negative control: hierarchical groups that outlive destroy_model_parallel (HCP023) must be detected.

megatron-core is initialized with CP 4 and levels [2, 2], destroyed, and initialized again with CP 2 and DP 2, this
time without sizes, as between training and an export. Its hierarchical groups are still the first ones: a new a2a+p2p
model uses them, and attends over 4 ranks although CP is 2. This must be detected: by the probe, and by logits that
differ from those of CP 1.

The workaround is shown too: megatron_hcp.proofs.megatron.model_parallel drops the groups after destroy_model_parallel.
"""

import sys

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.proofs.program import Program

BOUND = 1e-10


def work(world, options):
    # Imported here, so that --help and "torch is not installed" work without torch.
    from megatron.core import parallel_state

    from megatron_hcp.proofs.gpt import build_hcp_gpt, core_attentions, logits_error, logits_of
    from megatron_hcp.proofs.gpt_data import GptShape, global_batch
    from megatron_hcp.proofs.megatron import cpu_megatron, drop_hierarchical_groups, model_parallel
    from megatron_hcp.runtime.active import hcp_problem

    shape = GptShape()
    batch = global_batch(shape, 0, world.device)

    def second_time(sizes):
        return model_parallel(cp=2, hcp_sizes=sizes, timeout=world.timeout)

    with cpu_megatron():
        with model_parallel(cp=1):
            expected = logits_of(build_hcp_gpt(shape, world.device, cp=1, sizes=None), batch)

        # As users of upstream do it, without model_parallel's clean-up.
        parallel_state.initialize_model_parallel(
            context_parallel_size=4, hierarchical_context_parallel_sizes=[2, 2], create_gloo_process_groups=False
        )
        parallel_state.destroy_model_parallel()
        left = parallel_state.get_hierarchical_context_parallel_groups(check_initialized=False)
        if not left:
            raise HcpError(
                "this megatron-core drops its hierarchical groups in destroy_model_parallel: HCP023 does not concern "
                "it",
                wanted="a version that keeps them, such as 0.16.1",
            )
        sizes = [group.size() for group in left]
        world.expect("destroy_model_parallel leaves the hierarchical groups", sizes == [2, 2], f"levels of {sizes}")
        with second_time(None):
            model = build_hcp_gpt(shape, world.device, cp=2, sizes=[2, 1])
            cp_sizes = [attention.cp_size for attention in core_attentions(model)]
            world.expect("a new model at CP 2 attends over 4 ranks", cp_sizes == [4, 4], f"cp_size {cp_sizes}")
            said = hcp_problem(model)
            world.expect("the probe names HCP023", "HCP023" in (said or ""), said or "it passed")
            error = logits_error(logits_of(model, batch), expected)
            world.expect("logits differ from those of CP 1", error > 1e-3, f"by {error:.1e}")

        drop_hierarchical_groups()
        with second_time(None):
            said = hcp_problem(build_hcp_gpt(shape, world.device, cp=2, sizes=[2, 1]))
            world.expect(
                "with the groups dropped the probe says that none reached the model (HCP010)",
                "HCP010" in (said or ""),
                said or "it passed",
            )
        with second_time([2, 1]):
            model = build_hcp_gpt(shape, world.device, cp=2, sizes=[2, 1])
            said = hcp_problem(model)
            world.expect("initialized with its sizes the probe passes", said is None, said or "")
            error = logits_error(logits_of(model, batch), expected)
            world.expect_at_most("initialized with its sizes logits equal those of CP 1", error, BOUND)


if __name__ == "__main__":
    sys.exit(
        Program(
            "stale_groups", __doc__, work, world_size=lambda options: 4, needs=("torch", "megatron.core", "einops")
        ).main()
    )
