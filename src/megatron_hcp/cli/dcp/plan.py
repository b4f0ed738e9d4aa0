"""`hcp dcp plan` makes plans, compares them and writes them; `hcp dcp show` reads one back."""

from __future__ import annotations

from typing import Any, NamedTuple

import click

from megatron_hcp.cli.dcp.cost import cost_of, launch_facts, launch_settings, memory_of
from megatron_hcp.cli.options import format_option, launch_options
from megatron_hcp.cli.output import check_outputs, write_ours
from megatron_hcp.cli.screen import say
from megatron_hcp.dcp import LAYOUTS, TARGETS, Setup
from megatron_hcp.dcp.policies import plan_with, policies_of
from megatron_hcp.dcp.published import PUBLISHED
from megatron_hcp.dcp.schedule import OURS
from megatron_hcp.draw.timeline_rows import Timeline
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.load import LoadOptions

MAX_WORLD_SIZE = 2**20


@click.command()
@click.argument("target", required=False, metavar="[TARGET]")
@click.option("--world-size", type=int, help="Ranks that share a batch: DP x CP.  [default: from the launch]")
@click.option(
    "--max-seqlen",
    type=int,
    metavar="TOKENS",
    help="Maximum tokens per rank (max_seqlen_per_dp_cp_rank).  [default: from the launch]",
)
@click.option(
    "--lengths",
    required=True,
    metavar="FILE|-|1,2,3",
    help="Sequence lengths: numbers, or a file of numbers, JSON, JSONL, parquet, Megatron's .idx, or a verl log.",
)
@click.option("--field", metavar="NAME", help="JSON and parquet: the field with the length or the tokens.")
@click.option("--take", type=int, metavar="N", help="Use only N of the sequences (one step), evenly spread.")
@click.option(
    "--policy", default=OURS, show_default=True, metavar="NAME", help=f"{OURS}, or one of {', '.join(PUBLISHED)}."
)
@click.option(
    "--compare",
    is_flag=False,
    flag_value="all",
    metavar="[NAMES]",
    help=f"Compare with published schedulers: {','.join(PUBLISHED)}; all of them if none is named.",
)
@click.option(
    "--tp",
    type=int,
    help="Tensor-parallel size; with sequence parallelism, sequences are padded to 2 x TP x group.  "
    "[default: from the launch, or 1]",
)
@click.option(
    "--pp", type=int, help="Pipeline stages; the plan's time includes their bubble.  [default: from the launch, or 1]"
)
@click.option("--vpp", type=int, help="Model chunks per stage (virtual pipeline).  [default: from the launch, or 1]")
@click.option(
    "--sequence-parallel/--no-sequence-parallel",
    default=None,
    help="[default: from the launch, or --sequence-parallel]",
)
@click.option(
    "--groups",
    type=click.Choice(TARGETS),
    help="Allowed group sizes: as on megatron-core's main or dev branch, any power of two, or any number of ranks.  "
    "[default: from the launch, or main]",
)
@click.option("--min-cp-size", type=int, help="Smallest group size.  [default: from the launch, or 1]")
@click.option("--layout", type=click.Choice(LAYOUTS), help="Chunks per rank.  [default: from the launch, or zigzag]")
@click.option(
    "--min-local-rows", type=int, default=1, show_default=True, help="Number of rows that verl pads each rank to."
)
@click.option(
    "--memory",
    metavar="limit=N,token=N,...",
    help="Bytes available on a rank (limit), and bytes per padded token of the rank (token) and of its group "
    "(group_token).",
)
@click.option(
    "--cost",
    "cost_text",
    metavar="NAME=N,...",
    help="Cost of a sequence: linear (per token), quadratic (per token pair), comm (per token, for each doubling of "
    "the group).",
)
@click.option("--profile", metavar="FILE", help="Measured times, as written by `hcp dcp calibrate`.")
@click.option("--gpu", metavar="NAME", help="With a model: the GPU to estimate times for.  [default: h100]")
@click.option("--gpus-per-node", type=int, help="With a model: GPUs per node.  [default: from the launch, or 8]")
@launch_options
@click.option("--svg", metavar="FILE", help="Write a timeline as SVG.")
@click.option("--html", metavar="FILE", help="Write the timeline and tables as an HTML page.")
@click.option("-o", "--output", metavar="FILE", help="Write the plan as JSON; `hcp dcp show` reads it.")
@format_option("text", "json")
def plan(target: str | None, options: LoadOptions, **given: Any) -> None:
    """Assign sequences to micro-batches and to the groups of ranks that share them.

    A TARGET is a launch, as for `hcp check`; sizes are taken from it, and so is the model for the cost. To name only
    a model, use --model.

    \b
    hcp dcp plan --world-size 8 --max-seqlen 8192 --lengths 30000,9000,800,700
    hcp dcp plan --world-size 64 --max-seqlen 8192 --lengths data.jsonl --take 512 --compare --svg plan.svg
    """
    from megatron_hcp.data.lengths import read_lengths

    facts = launch_facts(target, options)
    outputs = {"--svg": given["svg"], "--html": given["html"], "-o": given["output"]}
    check_outputs(outputs, reads=(given["lengths"], given["profile"], options.model_file, target))
    request = _request(given, facts, options)
    found = read_lengths(given["lengths"], given["field"], given["take"])
    lines, failed = _plans(request, found.values, given["policy"], given["compare"])
    _write_pictures(lines, failed, given["svg"], given["html"])
    _print(lines, failed, found.note, given)


class _Request(NamedTuple):
    world_size: int
    max_seqlen: int
    setup: Setup


def _request(given: dict[str, Any], facts: dict[str, Any], options: LoadOptions) -> _Request:
    """What is asked for: taken from the options, and from the launch where an option is missing."""
    settings = {name: launch if given[name] is None else given[name] for name, launch in launch_settings(facts).items()}
    ranks = (facts.get("dp") or 0) * (facts.get("cp") or 0) or None
    world_size = _stated("--world-size", given["world_size"], ranks)
    max_seqlen = _stated("--max-seqlen", given["max_seqlen"], facts.get("max_seqlen_per_dp_cp_rank"))
    if world_size > MAX_WORLD_SIZE:
        raise HcpError(f"--world-size {str(world_size)[:20]}:", wanted=f"at most {MAX_WORLD_SIZE} ranks")
    cost = cost_of(
        given["cost_text"], given["profile"], facts, options.model_file, given["gpu"], tp=settings["tp"],
        pp=settings["pp"], gpus_per_node=given["gpus_per_node"],
    )  # fmt: skip
    memory, rows = memory_of(given["memory"]), given["min_local_rows"]
    return _Request(world_size, max_seqlen, Setup(cost=cost, memory=memory, min_local_rows=rows, **settings))


def _stated(option: str, given: int | None, launch: int | None) -> int:
    """The option's value, or the launch's; a note on stderr says where they differ."""
    if given is not None and launch is not None and given != launch:
        say([f"{option} {given} instead of the launch's {launch}"], err=True)
    value = launch if given is None else given
    if value is None:
        raise HcpError(f"{option}: not given, and no launch states it", do="give a number")
    return value


def _plans(
    request: _Request, lengths: Any, policy: str, compare: str | None
) -> tuple[list[Timeline], list[tuple[str, str]]]:
    """The plan and the ones it is compared with; for each that cannot be made, the reason."""
    from megatron_hcp.draw.timeline_rows import timeline_of

    sizes = (request.world_size, request.max_seqlen)
    lines = [timeline_of(plan_with(policy, lengths, *sizes, request.setup))]
    failed = []
    for name in policies_of(compare, lengths, *sizes) if compare is not None else ():
        if name == policy:
            continue
        try:
            lines.append(timeline_of(plan_with(name, lengths, *sizes, request.setup)))
        except HcpError as error:
            failed.append((name, str(error)))
    return lines, failed


@click.command()
@click.argument("file", metavar="PLAN.json")
@click.option("--svg", metavar="FILE", help="Write a timeline as SVG.")
@click.option("--html", metavar="FILE", help="Write the timeline and tables as an HTML page.")
@format_option("text", "json")
def show(file: str, svg: str | None, html: str | None, fmt: str) -> int:
    """Read a plan back, check it, and recompute its metrics. Exits with 1 if the plan cannot run as it is."""
    from megatron_hcp.dcp.plan_json import load_plan
    from megatron_hcp.draw.timeline_rows import timeline_of

    check_outputs({"--svg": svg, "--html": html}, reads=(file,))
    line = timeline_of(load_plan(file))
    _write_pictures([line], [], svg, html)
    _print([line], [], "", {"fmt": fmt, "output": None, "compare": None})
    return int(bool(line.problems))


def _write_pictures(lines: list[Timeline], failed: list[tuple[str, str]], svg: str | None, html: str | None) -> None:
    if svg is None and html is None:
        return
    from megatron_hcp.draw.timeline import render_page, render_timelines

    for option, path, render in (("--svg", svg, render_timelines), ("--html", html, render_page)):
        if path is not None:
            write_ours(option, path, render(lines, failed))


def _print(lines: list[Timeline], failed: list[tuple[str, str]], note: str, given: dict[str, Any]) -> None:
    from megatron_hcp.cli.reports import dcp as report

    if given["output"] is not None:
        write_ours("-o", given["output"], report.plan_dump(lines[0].plan) + "\n")
    if given["fmt"] == "json":
        compared = given["compare"] is not None
        click.echo(report.compare_dump(lines, failed, note) if compared else report.plan_dump(lines[0].plan))
    else:
        say(report.plan_lines(lines, failed, note))
