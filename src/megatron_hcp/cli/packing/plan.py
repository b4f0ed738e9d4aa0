"""`hcp pack plan`: how long packed rows should be, and what each length costs."""

from __future__ import annotations

import sys

import click

from megatron_hcp.cli.dcp.cost import launch_facts
from megatron_hcp.cli.options import format_option, launch_options
from megatron_hcp.cli.output import check_outputs, write_ours
from megatron_hcp.cli.packing.needs import needs_of
from megatron_hcp.cli.screen import say
from megatron_hcp.core.pack_plan import best_of, pack_sizes, plan_rows
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.load import LoadOptions

_MOST = 1 << 20
"""Tokens of the longest row that is considered, unless a sequence is longer."""
_MOST_RANKS = 1_000_000


@click.command()
@click.argument("target", required=False, metavar="[TARGET]")
@click.option(
    "--lengths",
    required=True,
    metavar="FILE|-|1,2,3",
    help="Sequence lengths: numbers, or a file of numbers, JSON, JSONL, parquet, or Megatron's .idx.",
)
@click.option("--field", metavar="NAME", help="JSON and parquet: the field with the length or the tokens.")
@click.option("--take", type=int, metavar="N", help="Use only N of the sequences, evenly spread.")
@click.option("--pack-size", type=int, metavar="TOKENS", help="Row length.  [default: the best of several]")
@click.option("--dp", type=int, help="Data-parallel size.  [default: from the launch]")
@launch_options
@click.option("--svg", metavar="FILE", help="Write a picture of how full the rows are.")
@format_option("text", "json")
def plan(
    target: str | None,
    lengths: str,
    field: str | None,
    take: int | None,
    pack_size: int | None,
    dp: int | None,
    svg: str | None,
    options: LoadOptions,
    fmt: str,
) -> None:
    """Choose the length of packed rows: compare rows, padding and lost tokens for several lengths.

    A TARGET is a launch, as for `hcp check`; its CP and TP sizes decide what multiple sequences are padded to.

    \b
    hcp pack plan run.yaml --lengths lengths.jsonl --svg rows.svg
    hcp pack plan --lengths data.idx --pack-size 8192 -- --context-parallel-size 4
    """
    from megatron_hcp.cli.reports import pack as report
    from megatron_hcp.data.lengths import read_lengths
    from megatron_hcp.data.sampling import MAX_LENGTH

    check_outputs({"--svg": svg})
    facts = launch_facts(target, options)
    needs = needs_of(facts)
    dp = facts.get("dp") if dp is None else dp
    if dp is not None and not 1 <= dp <= _MOST_RANKS:
        raise HcpError(f"--dp {str(dp)[:20]}:", wanted=f"a number of ranks, from 1 to {_MOST_RANKS:,}")
    if pack_size is not None and not 1 <= pack_size <= MAX_LENGTH:
        raise HcpError(f"--pack-size {str(pack_size)[:20]}:", wanted=f"the tokens of a row, from 1 to {MAX_LENGTH:,}")
    found = read_lengths(lengths, field, take)
    longest = max(found.values)
    sizes = [pack_size] if pack_size is not None else pack_sizes(longest, needs.row_multiple, max(_MOST, longest))
    if pack_size is None and needs.row is not None and needs.row not in sizes and needs.row % needs.row_multiple == 0:
        sizes.append(needs.row)
    plans = [plan_rows(found.values, size, needs.row_multiple) for size in sorted(sizes)]
    best = best_of(plans)
    if svg is not None:
        from megatron_hcp.draw.packing import render_rows

        write_ours("--svg", svg, render_rows(plans, best))
    if fmt == "json":
        from megatron_hcp.cli.reports.json import dump

        sys.stdout.write(dump(report.plan_json(plans, best, dp)) + "\n")
        sys.stdout.flush()
    else:
        say(report.plan_lines(plans, best, dp, found.note))
