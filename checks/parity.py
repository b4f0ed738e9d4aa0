"""Checks that a launch computes the same with and without context parallelism, on a small model with its settings.

`hcp verify --launch TARGET` writes --spec and starts this program; on GPUs, start it with torchrun. It trains twice
from the same weights on the same data, with and without CP: each module's outputs and output gradients, the gradient
of each weight, and the losses and gradients of a few steps must agree. The first module that differs is named.

The tolerance is measured by a third training, without CP, with every weight changed by one rounding step.
"""

import contextlib
import json
import sys
from pathlib import Path

from megatron_hcp.core.parity import UNIT_ROUNDOFF, TinyLaunch, tolerance_of
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.proofs.arguments import REFERENCE, add_attention
from megatron_hcp.proofs.program import Program


def add_arguments(parser):
    add_attention(parser)
    parser.add_argument("--spec", type=Path, metavar="FILE", help="JSON: the small launch")
    parser.add_argument("--steps", type=int, default=2, help="optimizer steps (default: %(default)s)")


def launch_of(options):
    if options.spec is None:
        raise HcpError("found no --spec", wanted="a file of hcp verify --launch --spec-out", do="give it")
    try:
        return TinyLaunch(**json.loads(options.spec.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise HcpError(f"--spec {options.spec}: {error}", wanted="a file of hcp verify --launch --spec-out") from None


def world_size(options):
    return launch_of(options).processes


def work(world, options):
    # Imported here, so that --help and "torch is not installed" work without torch.
    import torch

    from megatron_hcp.core.shards import cu_seqlens_of, shard_indices, shard_thd_indices
    from megatron_hcp.proofs.megatron import cpu_megatron
    from megatron_hcp.proofs.parity_trace import errors_of_traces

    launch = launch_of(options)
    with cpu_megatron() if world.device.type == "cpu" else contextlib.nullcontext():
        alone = run(world, options, launch, cp=1)
        moved = run(world, options, launch, cp=1, perturbed=True)
        found = run(world, options, launch, cp=launch.cp)
    cp_rank = world.rank // launch.tp
    boundaries = cu_seqlens_of(launch.lengths[0])
    rows = shard_thd_indices(boundaries, cp_rank, launch.cp) if launch.packed else None
    rows = torch.tensor(rows or shard_indices(launch.seq_length, cp_rank, launch.cp), device=world.device)
    is_token = torch.ones(launch.seq_length, dtype=torch.bool, device=world.device)
    for start, end, length in zip(boundaries, boundaries[1:], launch.lengths[1]):
        is_token[start + length : end] = False
    every = torch.arange(launch.seq_length, device=world.device)
    sensitivity = errors_of_traces(moved.trace, alone.trace, every, is_token)
    errors = errors_of_traces(found.trace, alone.trace, rows, is_token[rows])
    for name, error in errors.items():
        bound = tolerance_of(sensitivity[name], launch.precision, has_float32=has_float32(name, launch))
        world.expect_at_most(name, error, bound)
    compare_steps(world, launch, found.steps, alone.steps, moved.steps)


def has_float32(name, launch):
    """Whether Megatron-Core or Transformer Engine computed something before it in float32."""
    return not name.startswith("forward") or bool(launch.experts) or launch.softmax_type != "vanilla"


def compare_steps(world, launch, found, alone, moved):
    for number, (ours, theirs, other) in enumerate(zip(found, alone, moved), start=1):
        loss = abs(ours.loss_mean - theirs.loss_mean) / theirs.loss_mean
        bound = tolerance_of(
            abs(other.loss_mean - theirs.loss_mean) / theirs.loss_mean, launch.precision, has_float32=True
        )
        world.expect_at_most(f"step {number}: loss", loss, bound, f"{theirs.loss_mean:.6f} -> {ours.loss_mean:.6f}")
        ratio = {}
        for name, grad in theirs.grads.items():
            bound = tolerance_of(relative(other.grads[name], grad), launch.precision, has_float32=True)
            ratio[name] = relative(ours.grads[name], grad) / bound
        worst = max(ratio, key=lambda name: ratio[name])
        world.expect_at_most(f"step {number}: gradients, times their bound", ratio[worst], 1.0, f"worst {worst}")


class Run:
    """A trace of the first micro-batch, and the steps after it."""

    def __init__(self, trace, steps):
        self.trace, self.steps = trace, steps


def run(world, options, launch, *, cp, perturbed=False):
    """One training; a failure or hang is reported with the module in which it occurred."""
    from megatron.core import parallel_state

    from megatron_hcp.proofs.gpt import train
    from megatron_hcp.proofs.gpt_data import global_batch, micro_batch
    from megatron_hcp.proofs.megatron import model_parallel
    from megatron_hcp.proofs.parity_model import build_parity_model, perturb, shape_of
    from megatron_hcp.proofs.parity_trace import Where, summed_weights, trace
    from megatron_hcp.proofs.te_attention import core_attention_class

    shape, where = shape_of(launch), Where(["the process groups"])
    # On a CPU, the reference is our attention, which implements windows and sinks explicitly.
    is_reference = cp == 1 and world.device.type == "cpu"
    sizes = launch.hcp_sizes if cp > 1 else None
    try:
        with model_parallel(tp=launch.tp, cp=cp, hcp_sizes=sizes, timeout=world.timeout):
            core_attention = core_attention_class(REFERENCE if is_reference else options.attention)
            where[:] = ["building the model"]
            config, model = build_parity_model(launch, cp, core_attention, world.device)
            if perturbed:
                perturb(model, UNIT_ROUNDOFF[launch.precision])
            found = trace(model, micro_batch(global_batch(shape, 0, world.device), 0, shape), where)
            if cp > 1:
                found = summed_weights(found, parallel_state.get_context_parallel_group())
            model.zero_grad()
            where[:] = ["the training steps"]
            return Run(found, list(train(config, model, shape, world.device, options.steps)))
    except HcpError:
        raise
    except Exception as error:
        said = " ".join(str(error).split()) or f"{type(error).__name__} without a message"
        raise RuntimeError(f"CP {cp}: in {where}: {said}") from error


def relative(found, wanted):
    size = wanted.double().norm().item()
    error = (found.double() - wanted.double()).norm().item()
    return error / size if size else error


if __name__ == "__main__":
    sys.exit(
        Program(
            "parity",
            __doc__,
            work,
            world_size=world_size,
            needs=("torch", "megatron.core", "einops"),
            add_arguments=add_arguments,
        ).main()
    )
