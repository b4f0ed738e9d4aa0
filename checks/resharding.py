"""A checkpoint written at one CP size resumes at other CP and TP sizes, with the same losses.

megatron-core's own GPTModel, DDP, schedule and Adam train with CP over all processes; its own dist_checkpointing
(torch_dist) writes model and optimizer. Then they are read at CP 1, at half the CP, and at half the CP with TP 2, each
with the data parallelism that is left, and train the next steps. The losses must be those of the run that went on
without a break. The same with the distributed optimizer, whose states are split over DP x CP, in both of its formats:
fully_reshardable resumes at any TP, and dp_reshardable only at the TP and PP that wrote it, so it is read at the first
two. To show that the optimizer's states matter, the weights alone must not do.

Float64; float32 with the distributed optimizer, which has no float64. Upstream takes the cross-entropy in float32, so
TP 2 rounds differently. Attention is ours, on the CPU.
"""

import contextlib
import shutil
import sys
import tempfile
from typing import Any
from unittest import mock

from megatron_hcp.proofs.program import Program

BOUND = {"plain": 1e-7, "fully_reshardable": 1e-5, "dp_reshardable": 1e-5}
BEFORE, AFTER = range(3), range(3, 5)


def add_arguments(parser):
    parser.add_argument("--cp", type=int, default=4, help="CP size of the writer, the number of processes (default: 4)")


def world_size(options):
    return options.cp


def work(world, options):
    from megatron.core.dist_checkpointing.strategies import filesystem_async
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer

    from megatron_hcp.proofs.adam import group_step_adam
    from megatron_hcp.proofs.megatron import cpu_megatron

    # Upstream's writer logs how much memory it took, for which it wants psutil.
    quiet = mock.patch.object(filesystem_async, "_process_memory", lambda: 0)
    with cpu_megatron(), group_step_adam(), quiet:
        formats = DistributedOptimizer.checkpoint_fully_reshardable_formats
        found = "fully_reshardable" in formats and "dp_reshardable" not in formats
        world.expect("upstream's list of formats for another TP or PP", found, ", ".join(sorted(formats)))
        for form in BOUND:
            resume(world, options.cp, form)


def resume(world, cp, form):
    """Writes at CP `cp`, reads at others, and compares the losses of the next steps."""
    with shared_folder(world) as folder:
        resume_in(folder, world, cp, form)


def resume_in(folder, world, cp, form):
    with trained(world, form, tp=1, cp=cp) as job:
        run(world, job, BEFORE)
        save(job, form, folder)
        expected = run(world, job, AFTER)
    layouts = [(1, 1), (1, cp // 2)] + ([] if form == "dp_reshardable" else [(2, cp // 2)])
    for tp, size in layouts:
        for with_optimizer in (True, False) if (tp, size) == (1, 1) else (True,):
            with trained(world, form, tp=tp, cp=size) as job:
                load(job, form, folder, with_optimizer)
                found = run(world, job, AFTER)
            error = max(abs(a - b) / b for a, b in zip(found, expected))
            name = f"{form}: CP {cp} read at TP {tp} CP {size}"
            detail = ", ".join(f"{loss:.6f}" for loss in found)
            if with_optimizer:
                world.expect_at_most(f"{name}: loss", error, BOUND[form], detail)
            else:
                world.expect(f"{name}, weights alone: other losses", error > 100 * BOUND[form], f"off by {error:.1e}")


@contextlib.contextmanager
def trained(world, form, *, tp, cp):
    """A model and its optimizer on fresh groups: (config, model, ddp, optimizer, shape)."""
    import torch

    from megatron_hcp.proofs.gpt import build_gpt, transformer_config, with_optimizer
    from megatron_hcp.proofs.gpt_data import GptShape
    from megatron_hcp.proofs.megatron import model_parallel
    from megatron_hcp.proofs.te_attention import core_attention_class

    shape = GptShape(seq_length=8 * world.size, global_batch_size=world.size)
    with model_parallel(tp=tp, cp=cp, timeout=world.timeout):
        config = transformer_config(
            shape,
            dtype=torch.float64 if form == "plain" else torch.float32,
            tensor_model_parallel_size=tp,
            context_parallel_size=cp,
        )
        model = build_gpt(config, shape, core_attention_class(), world.device, seed=7 + cp)
        ddp, optimizer = with_optimizer(config, model, is_sharded=form != "plain")
        yield config, model, ddp, optimizer, shape


def run(world, job, steps):
    from megatron_hcp.proofs.gpt import train_steps

    config, _, ddp, optimizer, shape = job
    return [step.loss_mean for step in train_steps(config, ddp, optimizer, shape, world.device, steps)]


def state_of(job, form, is_loading, with_optimizer=True):
    """What Megatron's checkpointing saves of a model and its optimizer."""
    _, model, _, optimizer, _ = job
    metadata = {} if form == "plain" else {"distrib_optim_sharding_type": form}
    state = {"model": model.sharded_state_dict(metadata=metadata)}
    if with_optimizer:
        state["optimizer"] = optimizer.sharded_state_dict(state, is_loading=is_loading, metadata=metadata)
    return state


def save(job, form, folder):
    from megatron.core import dist_checkpointing

    dist_checkpointing.save(state_of(job, form, is_loading=False), folder)


def load(job, form, folder, with_optimizer):
    import torch
    from megatron.core import dist_checkpointing

    _, model, _, optimizer, _ = job
    state = dist_checkpointing.load(state_of(job, form, True, with_optimizer), folder)
    model.load_state_dict(state["model"])
    with torch.no_grad():  # float32 weights are their own main copies, which upstream writes in place
        if with_optimizer:
            optimizer.load_state_dict(state["optimizer"])
        elif form != "plain":
            optimizer.reload_model_params()


@contextlib.contextmanager
def shared_folder(world):
    """A new folder that all ranks of this machine know, and that is removed afterwards. Collective."""
    import torch.distributed as dist

    found: list[Any] = [tempfile.mkdtemp(prefix="resharding-") if world.rank == 0 else None]
    dist.broadcast_object_list(found)
    yield found[0]
    dist.barrier()
    if world.rank == 0:
        shutil.rmtree(found[0])


if __name__ == "__main__":
    sys.exit(
        Program(
            "resharding",
            __doc__,
            work,
            world_size=world_size,
            needs=("torch", "megatron.core", "einops"),
            add_arguments=add_arguments,
        ).main()
    )
