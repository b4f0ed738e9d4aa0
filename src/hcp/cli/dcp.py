"""`hcp dcp`: plans micro-batches of dynamic context parallelism, and says how the loss must be weighed."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hcp.cli.dcp_calibrate import calibrate
from hcp.cli.options import format_option
from hcp.cli.screen import say
from hcp.core.dcp import POLICIES, TARGETS, parse_cost, plan_micro_batches
from hcp.core.dcp.normalize import GATHERS, REDUCTIONS, megatron_factor
from hcp.core.errors import HcpError

if TYPE_CHECKING:
    from hcp.draw.timeline_rows import Timeline

MAX_WORLD_SIZE = 2**20


@click.group()
def dcp() -> None:
    """Dynamic context parallelism: plan groups per sequence, and weigh the loss."""


dcp.add_command(calibrate)


@dcp.command()
@click.option("--world-size", type=int, required=True, help="Ranks that share a batch: DP x CP.")
@click.option(
    "--max-seqlen",
    type=int,
    required=True,
    metavar="TOKENS",
    help="Tokens that a rank may hold (max_seqlen_per_dp_cp_rank).",
)
@click.option(
    "--lengths",
    required=True,
    metavar="FILE|-|1,2,3",
    help="Lengths of the sequences: numbers, a file of numbers, JSON or JSONL, or - for standard input.",
)
@click.option("--field", metavar="NAME", help="JSON objects: the field with the length, or with the tokens.")
@click.option("--policy", type=click.Choice(POLICIES), default="balanced", show_default=True)
@click.option("--compare", is_flag=True, help="Every policy, side by side.")
@click.option(
    "--tp",
    type=int,
    default=1,
    show_default=True,
    help="Tensor-parallel size; with sequence parallelism sequences are padded to 2 x TP x group.",
)
@click.option("--sequence-parallel/--no-sequence-parallel", default=True, show_default=True)
@click.option(
    "--groups",
    type=click.Choice(TARGETS),
    default="pow2",
    show_default=True,
    help="Whose process groups: megatron-core's main or dev branch, or every power of two.",
)
@click.option(
    "--cost",
    "cost_text",
    default="",
    metavar="NAME=N,...",
    help="Cost of a sequence: linear (per token), quadratic (per pair), comm (per token and extra ranks).",
)
@click.option("--svg", type=click.Path(path_type=Path), metavar="FILE", help="Write a timeline as SVG.")
@click.option(
    "--html", type=click.Path(path_type=Path), metavar="FILE", help="Write the timeline and tables as a page."
)
@format_option("text", "json")
def plan(
    world_size: int,
    max_seqlen: int,
    lengths: str,
    field: str | None,
    policy: str,
    compare: bool,
    tp: int,
    sequence_parallel: bool,
    groups: str,
    cost_text: str,
    svg: Path | None,
    html: Path | None,
    fmt: str,
) -> None:
    """Assign sequences to micro-batches and to groups of ranks that share them.

    \b
    hcp dcp plan --world-size 8 --max-seqlen 8192 --lengths 30000,9000,800,700
    hcp dcp plan --world-size 64 --max-seqlen 8192 --lengths data.jsonl --field num_tokens --compare --svg plan.svg
    """
    from hcp.cli.reports import dcp as report
    from hcp.data.lengths import read_lengths
    from hcp.draw.timeline_rows import timeline_of

    if world_size > MAX_WORLD_SIZE:
        raise HcpError(f"--world-size {str(world_size)[:20]}: wanted at most {MAX_WORLD_SIZE} ranks")
    cost = parse_cost(cost_text)
    found = read_lengths(lengths, field).values
    plans, failed = [], []
    for name in POLICIES if compare else (policy,):
        try:
            plans.append(
                plan_micro_batches(
                    found,
                    world_size,
                    max_seqlen,
                    policy=name,
                    cost=cost,
                    tp=tp,
                    sequence_parallel=sequence_parallel,
                    groups=groups,
                )
            )
        except HcpError as error:
            if not compare or name == POLICIES[0]:
                raise
            failed.append((name, str(error)))
    align = tp if sequence_parallel else 1
    timelines = [timeline_of(one, cost, align) for one in plans]
    for path, is_page in ((svg, False), (html, True)):
        if path is not None:
            _draw(timelines, failed, path, is_page)
    if fmt == "json":
        click.echo(report.compare_json(plans, failed) if compare else report.plan_json(plans[0]))
    else:
        click.echo(report.plan_text(timelines, failed, groups))


@dcp.command()
@click.option("--world-size", type=int, required=True, help="Ranks that share a batch: DP x CP.")
@click.option(
    "--sizes",
    multiple=True,
    required=True,
    metavar="C,C,...",
    help="Group sizes of a micro-batch, together all ranks; give it once per micro-batch.",
)
@click.option(
    "--reduction",
    type=click.Choice(REDUCTIONS),
    default="mean",
    show_default=True,
    help="What DDP does with the gradients (sum: calculate_per_token_loss).",
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
    help="The static size: count in what megatron-core's schedules multiply a returned (loss, report) by.",
)
@click.option(
    "--num-micro-batches",
    type=int,
    metavar="N",
    help="With --context-parallel-size: micro-batches of the step (default: as many as --sizes).",
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
    """Say what to multiply the loss by, for the gradient and for the log.

    \b
    hcp dcp weights --world-size 8 --sizes 8 --sizes 4,2,1,1
    hcp dcp weights --world-size 8 --sizes 2,2,2,2 --gather replicated
    hcp dcp weights --world-size 8 --sizes 8 --context-parallel-size 4 --num-micro-batches 6
    """
    from hcp.cli.reports import dcp as report

    if not 1 <= world_size <= MAX_WORLD_SIZE:
        raise HcpError(f"--world-size {str(world_size)[:20]}: wanted 1 to {MAX_WORLD_SIZE} ranks")
    micro_batches = [_sizes(text, world_size) for text in sizes]
    applied = Fraction(1)
    if context_parallel_size is not None:
        number = len(micro_batches) if num_micro_batches is None else num_micro_batches
        applied = megatron_factor(context_parallel_size, number)
    elif num_micro_batches is not None:
        raise HcpError("--num-micro-batches: found no --context-parallel-size; give megatron-core's static size too")
    rows = report.weight_rows(world_size, micro_batches, reduction, gather, applied)
    if fmt == "json":
        click.echo(json.dumps(report.weights_json(world_size, reduction, gather, applied, rows), indent=2))
    else:
        click.echo(report.weights_text(world_size, reduction, gather, applied, rows))


def _sizes(text: str, world_size: int) -> list[int]:
    words = text.replace(",", " ").split()
    sizes = [int(word) for word in words if word.isdecimal() and len(word) < 8]
    if len(sizes) != len(words) or not sizes or min(sizes) < 1:
        raise HcpError(f"--sizes {text[:40]!r}: wanted group sizes such as 4,2,1,1")
    if sum(sizes) != world_size:
        raise HcpError(f"--sizes {text[:40]}: the groups have {sum(sizes)} ranks together; wanted {world_size}")
    return sizes


def _draw(timelines: list[Timeline], failed: list[tuple[str, str]], path: Path, is_page: bool) -> None:
    from hcp.draw.timeline import render_page, render_timelines

    drawn = (render_page if is_page else render_timelines)(timelines, failed)
    try:
        path.write_text(drawn, encoding="utf-8")
    except OSError as error:
        option = "--html" if is_page else "--svg"
        raise HcpError(
            f"{option} {path}: cannot be written ({error.strerror}); name a file in a folder that exists"
        ) from None
    say([f"wrote {path}"], err=True)
