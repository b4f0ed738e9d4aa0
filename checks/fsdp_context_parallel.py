"""PyTorch's FSDP2 with context parallelism: megatron-core's wrapper gives the gradients of training without either.

megatron-core's TorchFullyShardedDataParallel shards a real GPTModel over all DP x CP ranks, first with CP over all of
them, then with CP over half. Loss and every gradient, gathered, must be those of one process on the same batch. The
wrapper averages gradients over DP x CP, so a loss is the rank's sum of tokens, times the size of the group, over all
the batch's tokens; a mean of each rank's own tokens must give other gradients, as the masked tokens are uneven.

Then the last step of upstream's own training, finalize_model_grads: releases 0.16 to 0.18 fail in it, and in every
release scale_gradients, by which it divides by the number of tokens under per-token loss, leaves FSDP2's gradients as
they are. --finalize says what is expected of the installed release. Float64, on the CPU; attention is ours.
"""

import sys
from types import SimpleNamespace
from unittest import mock

from megatron_hcp.proofs.program import Program

BOUND = 1e-10
WORLD = 4


def add_arguments(parser):
    parser.add_argument(
        "--finalize",
        choices=("works", "TypeError"),
        help="what finalize_model_grads must do (default: TypeError from 0.16 to 0.18, otherwise works)",
    )


def work(world, options):
    from megatron.core.distributed import torch_fully_sharded_data_parallel as upstream
    from torch.distributed import DeviceMesh

    from megatron_hcp.proofs.megatron import cpu_megatron

    # Upstream's mesh is of "cuda" devices.
    on_cpu = SimpleNamespace(from_group=lambda group, device: DeviceMesh.from_group(group, "cpu"))
    with cpu_megatron(), mock.patch.object(upstream, "DeviceMesh", on_cpu):
        alone = gradients(world, cp=1, is_sharded=False)
        for cp in (WORLD, WORLD // 2):
            found = gradients(world, cp=cp, is_sharded=True)
            worst = max(relative(found[name], alone[name]) for name in alone)
            world.expect_at_most(f"FSDP2, CP {cp}: gradients", worst, BOUND, f"{len(alone)} parameters")
            per_rank = gradients(world, cp=cp, is_sharded=True, mean_of_rank=True)
            other = max(relative(per_rank[name], alone[name]) for name in alone)
            world.expect(f"FSDP2, CP {cp}: means of ranks differ", other > 1e-3, f"by up to {other:.1e}")
        wanted = options.finalize or expected_of_release()
        found, scaled = finalized(world)
        world.expect(f"finalize_model_grads: {wanted}", found.startswith(wanted), found)
        world.expect("scale_gradients: does nothing", scaled == 1.0, f"1 became {scaled:g}")


def gradients(world, *, cp, is_sharded, mean_of_rank=False):
    """The whole gradient of every parameter, by name, of one step on the global batch."""
    from megatron.core import parallel_state

    from megatron_hcp.proofs.gpt import losses_of
    from megatron_hcp.proofs.gpt_data import global_batch, micro_batch
    from megatron_hcp.proofs.megatron import model_parallel

    with model_parallel(cp=cp, timeout=world.timeout):
        _, shape, model, wrapped = built(world, cp, is_sharded)
        whole = global_batch(shape, 0, world.device)
        group = parallel_state.get_data_parallel_group(with_context_parallel=True)
        rows = range(parallel_state.get_data_parallel_rank(), shape.global_batch_size, WORLD // cp)
        parts = [micro_batch(whole, row, shape) for row in (rows if is_sharded else range(shape.global_batch_size))]
        tokens = whole["loss_mask"].sum()
        if mean_of_rank:
            tokens = sum(part["loss_mask"].sum() for part in parts) * group.size()
        scale = group.size() if is_sharded else 1
        for part in parts:
            loss = (losses_of(wrapped, part).double() * part["loss_mask"]).sum() * scale / tokens
            loss.backward()
        return {name: whole_of(param.grad) for name, param in model.named_parameters()}


def whole_of(grad):
    """A gradient put together from every rank's shard, or as it is. Collective if it is sharded.

    Not by full_tensor(): torch remembers how by the mesh's ranks, and the groups of an earlier layout are gone.
    """
    import torch
    import torch.distributed as dist

    if not hasattr(grad, "to_local"):
        return grad
    shards = [None] * dist.get_world_size()
    dist.all_gather_object(shards, grad.to_local())
    return torch.cat(shards)


def built(world, cp, is_sharded):
    """The model, and in the second place what training calls: itself, or megatron-core's FSDP2 wrapper around it."""
    from megatron.core.distributed import DistributedDataParallelConfig, TorchFullyShardedDataParallel

    from megatron_hcp.proofs.gpt import build_gpt, transformer_config
    from megatron_hcp.proofs.gpt_data import GptShape
    from megatron_hcp.proofs.te_attention import core_attention_class

    shape = GptShape(seq_length=8 * WORLD)
    config = transformer_config(shape, context_parallel_size=cp, transformer_impl="local")
    model = build_gpt(config, shape, core_attention_class(), world.device)
    if not is_sharded:
        return config, shape, model, model
    return config, shape, model, TorchFullyShardedDataParallel(config, DistributedDataParallelConfig(), model)


def finalized(world):
    """How finalize_model_grads ends with 4 tokens on each rank, and what scale_gradients(1/4) makes of 1."""
    import torch
    from megatron.core.distributed import finalize_model_grads

    from megatron_hcp.proofs.megatron import model_parallel

    with model_parallel(cp=WORLD, timeout=world.timeout):
        _, _, model, wrapped = built(world, WORLD, is_sharded=True)
        for param in model.parameters():
            param.grad = torch.ones_like(param)
        try:
            finalize_model_grads([wrapped], num_tokens=torch.tensor(4))
            ended = "works"
        except TypeError as error:
            ended = f"TypeError: {error}"
        for param in model.parameters():
            param.grad = torch.ones_like(param)
        wrapped.scale_gradients(0.25)
        return ended, next(model.parameters()).grad.to_local().flatten()[0].item()


def expected_of_release():
    import megatron.core

    release = tuple(int(part) for part in megatron.core.__version__.split(".")[:2])
    return "TypeError" if (0, 16) <= release < (0, 19) else "works"


def relative(found, wanted):
    return ((found - wanted).norm() / wanted.norm()).item()


if __name__ == "__main__":
    sys.exit(
        Program(
            "fsdp_context_parallel",
            __doc__,
            work,
            world_size=lambda options: WORLD,
            needs=("torch", "megatron.core", "einops"),
            add_arguments=add_arguments,
        ).main()
    )
