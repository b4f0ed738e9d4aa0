"""`hcp groups`: every rank group of a launch, and which of them leave their node."""

from __future__ import annotations

import click

from megatron_hcp.cli.options import format_option
from megatron_hcp.cli.output import write_ours
from megatron_hcp.core.placement import Placement
from megatron_hcp.core.ranks import DEFAULT_ORDER, Grids, grids_of
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.numbers import whole_number

MAX_SIZE = 10**12
MAX_LISTED = 2**16
"""Listing more would take seconds, and nobody would read it; the groups of one rank can be shown at any size."""
"""Above this many ranks, only one rank's groups can be shown: the full lists would exhaust memory."""


def level_sizes(text: str) -> tuple[int, ...]:
    """Level sizes as people write them: `8,2`, `8 2` or `[8, 2]`."""
    sizes = tuple(map(whole_number, text.strip("[]() ").replace(",", " ").split()))
    known = tuple(size for size in sizes if size is not None)
    if not known or len(known) < len(sizes):
        raise HcpError(f"--hcp {text[:60]!r}:", wanted="level sizes such as 8,2, the inner (a2a) one first")
    return known


_ETP = "state --etp 1 if that is meant: Megatron-Bridge, ms-swift and `hcp plan` default to it, megatron-core to TP"


@click.command()
@click.option("--world-size", type=int, required=True, help="Number of ranks (GPUs).")
@click.option("--tp", type=int, default=1, show_default=True, help="Tensor-parallel size.")
@click.option("--cp", type=int, default=1, show_default=True, help="Context-parallel size.")
@click.option("--pp", type=int, default=1, show_default=True, help="Pipeline-parallel size.")
@click.option("--ep", type=int, default=1, show_default=True, help="Expert-parallel size.")
@click.option("--etp", type=int, help="Expert-tensor-parallel size.  [default: tp]")
@click.option(
    "--gtp", type=int, default=1, show_default=True, help="Weight shards beyond tp (megatron-core 0.19 and later)."
)
@click.option("--hcp", metavar="INNER,OUTER", help="Level sizes of hierarchical CP, such as 8,2.")
@click.option("--order", default=DEFAULT_ORDER, show_default=True, help="Axes of the rank mesh, fastest first.")
@click.option("--gpus-per-node", type=int, default=8, show_default=True)
@click.option("--nvlink-domain", type=int, help="GPUs joined by NVLink, such as 72 on NVL72.  [default: GPUs per node]")
@click.option(
    "--placement",
    type=click.Choice(["block", "cyclic"]),
    default="block",
    show_default=True,
    help="How ranks are placed on nodes, as in srun --distribution.",
)
@click.option("--rank", type=int, help="Show only this rank's groups; fast at any size.")
@click.option("--all", "is_all", is_flag=True, help="In text output, list every group with all its ranks.")
@format_option("text", "json")
@click.option(
    "--svg",
    "picture",
    metavar="FILE",
    help="Write a picture of the CP groups on their nodes, as SVG.",
)
def groups(
    world_size: int,
    tp: int,
    cp: int,
    pp: int,
    ep: int,
    etp: int | None,
    gtp: int,
    hcp: str | None,
    order: str,
    gpus_per_node: int,
    nvlink_domain: int | None,
    placement: str,
    rank: int | None,
    is_all: bool,
    fmt: str,
    picture: str | None,
) -> None:
    """List all rank groups in megatron-core's order, and show which of them cross nodes.

    \b
    hcp groups --world-size 32 --cp 16 --hcp 8,2
    hcp groups --world-size 32 --tp 2 --cp 16 --hcp 8,2 --rank 5
    """
    sizes = () if hcp is None else level_sizes(hcp)
    if max(world_size, tp, cp, pp, ep, etp or 1, gtp, gpus_per_node, nvlink_domain or 1, *sizes) > MAX_SIZE:
        raise HcpError(f"a size is above {MAX_SIZE}:", wanted="numbers of GPUs")
    try:
        grids = grids_of(world_size, tp=tp, cp=cp, pp=pp, ep=ep, etp=etp, gtp=gtp, order=order)
    except HcpError as error:
        if etp is None and tp > 1 and ep > 1 and world_size % (ep * pp) == 0:
            raise HcpError(f"{error.found}: --etp is TP", wanted=error.wanted, do=_ETP) from None
        raise
    place = Placement(world_size, gpus_per_node, nvlink_domain, placement)
    if rank is not None and not 0 <= rank < world_size:
        raise HcpError(f"--rank is outside a world of {world_size} ranks:", wanted=f"0 to {world_size - 1}")
    if world_size > MAX_LISTED and (rank is None or is_all or picture or fmt == "json"):
        raise HcpError(
            f"--world-size {world_size}: at most {MAX_LISTED} ranks are listed or drawn",
            do="ask for one rank's groups in text (--rank R)",
        )
    from megatron_hcp.cli.reports import groups as report

    placed = report.PlacedGroups(grids, sizes, place)
    if picture:
        _draw(grids, sizes, place, picture)
    if fmt == "json":
        click.echo(report.groups_json(placed) if rank is None else report.rank_json(placed, rank))
    else:
        click.echo(report.groups_text(placed, is_all) if rank is None else report.rank_text(placed, rank, is_all))


def _draw(grids: Grids, sizes: tuple[int, ...], place: Placement, path: str) -> None:
    from megatron_hcp.draw.groups import render_groups

    write_ours("--svg", path, render_groups(grids, sizes, place))
