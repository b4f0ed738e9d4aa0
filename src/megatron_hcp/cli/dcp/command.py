"""`hcp dcp`: plans micro-batches for dynamic context parallelism, and gives the weights of the loss."""

from __future__ import annotations

import json
from fractions import Fraction

import click

from megatron_hcp.cli.dcp.calibrate import calibrate
from megatron_hcp.cli.dcp.plan import MAX_WORLD_SIZE, plan, show
from megatron_hcp.cli.options import format_option
from megatron_hcp.cli.usage import CommandGroup
from megatron_hcp.dcp.normalize import GATHERS, REDUCTIONS, megatron_factor
from megatron_hcp.ground.errors import HcpError


@click.group(cls=CommandGroup)
def dcp() -> None:
    """Dynamic context parallelism: plan groups per sequence, and weight the loss."""


dcp.add_command(plan)
dcp.add_command(show)
dcp.add_command(calibrate)


@dcp.command()
@click.option("--world-size", type=int, required=True, help="Ranks that share a batch: DP x CP.")
@click.option(
    "--sizes",
    multiple=True,
    required=True,
    metavar="C,C,...",
    help="Group sizes of a micro-batch; they add up to all ranks. Give it once per micro-batch.",
)
@click.option(
    "--reduction",
    type=click.Choice(REDUCTIONS),
    default="mean",
    show_default=True,
    help="How DDP reduces the gradients (sum: calculate_per_token_loss).",
)
@click.option(
    "--gather",
    type=click.Choice(GATHERS),
    default="detached",
    show_default=True,
    help="How a rank gets its group's outputs: verl's engine is detached.",
)
@click.option(
    "--context-parallel-size",
    type=int,
    metavar="N",
    help="The static CP size: account for the factor by which megatron-core's schedules multiply a returned "
    "(loss, report).",
)
@click.option(
    "--num-micro-batches",
    type=int,
    metavar="N",
    help="With --context-parallel-size: micro-batches per step (default: one per --sizes).",
)
@format_option("text", "json")
def weights(
    world_size: int,
    sizes: tuple[str, ...],
    reduction: str,
    gather: str,
    context_parallel_size: int | None,
    num_micro_batches: int | None,
    fmt: str,
) -> None:
    """Print the factors to multiply the loss by, for the gradient and for the log.

    \b
    hcp dcp weights --world-size 8 --sizes 8 --sizes 4,2,1,1
    hcp dcp weights --world-size 8 --sizes 2,2,2,2 --gather replicated
    hcp dcp weights --world-size 8 --sizes 8 --context-parallel-size 4 --num-micro-batches 6
    """
    from megatron_hcp.cli.reports import dcp_weights as report

    if not 1 <= world_size <= MAX_WORLD_SIZE:
        raise HcpError(f"--world-size {str(world_size)[:20]}:", wanted=f"1 to {MAX_WORLD_SIZE} ranks")
    micro_batches = [_sizes(text, world_size) for text in sizes]
    applied = Fraction(1)
    if context_parallel_size is not None:
        number = len(micro_batches) if num_micro_batches is None else num_micro_batches
        _check_factor(world_size, context_parallel_size, len(micro_batches), number)
        applied = megatron_factor(context_parallel_size, number)
    elif num_micro_batches is not None:
        raise HcpError(
            "--num-micro-batches: found no --context-parallel-size", do="give megatron-core's static size too"
        )
    rows = report.weight_rows(world_size, micro_batches, reduction, gather, applied)
    if fmt == "json":
        click.echo(json.dumps(report.weights_json(world_size, reduction, gather, applied, rows), indent=2))
    else:
        click.echo(report.weights_text(world_size, reduction, gather, applied, rows))


def _check_factor(world_size: int, context_parallel_size: int, given: int, number: int) -> None:
    """Raises HcpError if the static size does not divide W, or if there are fewer micro-batches than --sizes."""
    if context_parallel_size > 0 and world_size % context_parallel_size:
        raise HcpError(
            f"--context-parallel-size {str(context_parallel_size)[:20]}:", wanted=f"a divisor of the {world_size} ranks"
        )
    if 0 < number < given:
        raise HcpError(
            f"--num-micro-batches {str(number)[:20]}: --sizes describes {given}",
            wanted=f"the micro-batches of the whole step, at least {given}",
        )


def _sizes(text: str, world_size: int) -> list[int]:
    words = text.replace(",", " ").split()
    sizes = [int(word) for word in words if word.isascii() and word.isdecimal() and len(word) < 8]
    if len(sizes) != len(words) or not sizes or min(sizes) < 1:
        raise HcpError(f"--sizes {text[:40]!r}:", wanted="group sizes such as 4,2,1,1")
    if sum(sizes) != world_size:
        raise HcpError(f"--sizes {text[:40]}: the groups have {sum(sizes)} ranks together", wanted=str(world_size))
    return sizes
