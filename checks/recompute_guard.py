"""Checks which case of activation recomputation, as named in the skill, applies to the installed megatron-core.

verl replaces the backward of megatron-core's CheckpointFunction (`apply_patch_megatron_recomputation_backward`). Pull
request verl#5869 guards that patch: skip it unless CheckpointFunction has _recover_function_args. The method is in no
megatron-core from 0.12 to 0.16.1 and not in Megatron-LM main of August 2026: there the guarded patch must be skipped.

The step fails if the other case is installed: the skill is then out of date. The check looks for the method in the
class, and the class's own backward must agree: it either calls the method or takes its arguments only from the saved
tensors. Two stand-ins show that the check tells the cases apart.
"""

import sys

from megatron_hcp.proofs.program import Program


class Recovering:
    @staticmethod
    def _recover_function_args(ctx):
        return ctx.saved_tensors

    @staticmethod
    def backward(ctx, *args):
        return Recovering._recover_function_args(ctx)


class Plain:
    @staticmethod
    def backward(ctx, *args):
        return ctx.saved_tensors


def work(world, options):
    # Imported here, so that --help and "torch is not installed" work without torch.
    from megatron.core.tensor_parallel.random import CheckpointFunction

    from megatron_hcp.proofs.recompute import METHOD

    case = consistent_case(CheckpointFunction)
    world.expect(
        "the installed megatron-core takes its arguments from the saved tensors, as every release does",
        case == "plain",
        {
            "recovers": f"CheckpointFunction.{METHOD} exists: the guarded patch applies, and the skill is out of date",
            "plain": f"CheckpointFunction has no {METHOD}: the guarded patch must be skipped",
            None: f"its backward and the presence of {METHOD} disagree",
        }[case],
    )
    world.expect(
        "a class with the method is told from one without",
        (consistent_case(Recovering), consistent_case(Plain)) == ("recovers", "plain"),
    )


def consistent_case(function):
    """The case, or None if the class's own backward contradicts it."""
    from megatron_hcp.proofs.recompute import METHOD, names_used, recompute_case

    case, names = recompute_case(function), names_used(function, "backward")
    agrees = METHOD in names if case == "recovers" else METHOD not in names and "saved_tensors" in names
    return case if agrees else None


if __name__ == "__main__":
    sys.exit(
        Program("recompute_guard", __doc__, work, world_size=lambda options: 1, needs=("torch", "megatron.core")).main()
    )
