"""A plan's memory as upstream's own run counts it, beside the formulas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from megatron_hcp.cli.reports.plan_json import Counted, RankMemory, Shown
from megatron_hcp.cli.reports.words import wrapped
from megatron_hcp.cli.screen import say
from megatron_hcp.launch.load import LoadOptions

_KINDS = ("parameters", "gradients", "kept")
_SHOWN = 6
_MIB = float(1 << 20)


def measured(shown: Shown, target: str, options: LoadOptions) -> tuple[Shown, int]:
    """The plan with the memory of one rank for each pipeline position, and the exit code of its dry run.

    Raises:
        HcpError: as `megatron_hcp.dryrun.ask.dry_run`.
    """
    from megatron_hcp.dryrun.ask import HowToRun, dry_run
    from megatron_hcp.dryrun.ranks import sizes_of
    from megatron_hcp.dryrun.report import exit_code, unlimited
    from megatron_hcp.launch.load import load_launch

    launch = load_launch(target, options)
    run = dry_run(launch, HowToRun(measure=True))
    say(unlimited(run), err=True)
    sizes = sizes_of(launch)
    found = [_of_rank(one, shown, sizes.stage(run.world, one.rank)) for one in run.outcomes]
    return shown._replace(measured=found), exit_code(run)


def _of_rank(one: Any, shown: Shown, stage: int) -> RankMemory:
    if one.measured is None:
        error = one.error or {"missing": "", "type": "", "message": ""}
        missing = error["missing"] or f"upstream refuses it: {error['type']}: {error['message']}"
        return RankMemory(one.rank, one.role, f"beyond {one.stage}: {missing}", {}, {}, ())
    tables = {kind: one.measured[kind] for kind in _KINDS}
    names = dict.fromkeys(name for table in tables.values() for name in table)
    modules = {name: {kind: table.get(name, 0) for kind, table in tables.items()} for name in names}
    kinds = _beside_formulas(one, tables, shown, stage)
    return RankMemory(one.rank, one.role, "", kinds, modules, tuple(one.measured["not_measured"]))


def _beside_formulas(one: Any, tables: Mapping[str, Mapping[str, int]], shown: Shown, stage: int) -> dict[str, Counted]:
    from megatron_hcp.plan.memory.activations import kept_evenly
    from megatron_hcp.plan.memory.peak import stage_terms

    layout = shown.layouts[0].layout
    terms = stage_terms(shown.model, layout, shown.job, stage) if stage < layout.pp else {}
    return {
        "weights": Counted(sum(tables["parameters"].values()), terms.get("weights")),
        "gradients": Counted(sum(tables["gradients"].values()), terms.get("gradients")),
        "optimizer": Counted(one.measured["optimizer"], terms.get("optimizer")),
        "kept by layers": Counted(one.kept_by_layers, kept_evenly(terms) if terms else None),
        "kept by the rest": Counted(sum(tables["kept"].values()) - one.kept_by_layers, None),
    }


def measured_lines(ranks: Sequence[RankMemory]) -> Iterator[str]:
    """For each rank what was counted, how far the formulas are off, and what keeps most."""
    yield "counted in upstream's own run, in MiB; in brackets how far the formulas are off:"
    for one in ranks:
        where = f"rank {one.rank} ({one.role})"
        if one.missing:
            yield from wrapped("  ", f"{where}: not measured {one.missing}")
            continue
        yield from wrapped("  ", f"{where}: " + ", ".join(f"{kind} {_shown(size)}" for kind, size in one.kinds.items()))
        most = sorted(one.modules.items(), key=lambda item: -item[1]["kept"])[:_SHOWN]
        listed = ", ".join(f"{name} {sizes['kept'] / _MIB:.0f}" for name, sizes in most if sizes["kept"])
        yield from wrapped("    ", f"kept by {listed}")
        if one.stand_ins:
            yield from wrapped("    ", f"not counted: what {' and '.join(one.stand_ins)} keep, which are stand-ins")


def _shown(size: Counted) -> str:
    if size.counted is None:
        return "not counted"
    text = f"{size.counted / _MIB:.0f}"
    return text if not size.formulas or not size.counted else f"{text} ({size.formulas / size.counted - 1:+.1%})"
