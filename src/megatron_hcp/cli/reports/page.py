"""Checks as one HTML page (`hcp check --html FILE`): topology, findings, memory and time, groups, facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from megatron_hcp.cli.reports.groups import PlacedGroups, groups_rows
from megatron_hcp.cli.reports.json import harmless
from megatron_hcp.cli.reports.plan_json import Shown, plan_json
from megatron_hcp.cli.reports.show import topology
from megatron_hcp.cli.reports.text import verdict_line
from megatron_hcp.cli.reports.words import details_of, fact_value, fix_text, launch_name, rules_by_need
from megatron_hcp.cli.screen import safe_line
from megatron_hcp.core.placement import Placement
from megatron_hcp.core.ranks import DEFAULT_ORDER, Grids, grids_of
from megatron_hcp.draw.groups import groups_image
from megatron_hcp.draw.plan import plan_scene
from megatron_hcp.draw.template import fill_template
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.place import Location
from megatron_hcp.judge.report import Finding, Report
from megatron_hcp.launch.fact import Launch, shown_value
from megatron_hcp.launch.load import LoadOptions

_MOST_RANKS = 4096
"""Groups of more ranks are not listed."""
_SIZES = ("world_size", "gpus_per_node", "tp", "cp", "pp")


def page(reports: Sequence[Report], errors: Sequence[str], options: LoadOptions) -> str:
    """The page: a part for each launch, and the targets that could not be used."""
    title = launch_name(reports[0].launch) if len(reports) == 1 else f"{len(reports)} launches"
    told = harmless({"title": title, "launches": [_launch(report, options) for report in reports], "errors": errors})
    pictures = [_picture(_placed(report.launch)[0]) for report in reports]
    return fill_template("check.html.j2", pictures=pictures, **told)


def _launch(report: Report, options: LoadOptions) -> dict[str, Any]:
    launch = report.launch
    placed, no_groups = _placed(launch)
    scene, no_plan = _plan(launch, options)
    return {
        "name": launch_name(launch),
        "verdict": safe_line(verdict_line(report)[1:]),
        "tone": {"failed": "error", "undecided": "warning", "ok": "info"}[report.verdict],
        "topology": topology(launch),
        "findings": [_finding(report, finding) for finding in report.findings],
        "undecided": [{"at": _place(item.location), "text": item.reason, "do": item.do} for item in report.undecided],
        "accepted": [(_place(item.location), f"{item.id} {item.rule.title}") for item in report.accepted],
        "groups": groups_rows(placed) if placed else [],
        "no_groups": no_groups,
        "scene": scene,
        "no_plan": no_plan,
        "facts": _facts(launch, is_default=False),
        "defaults": _facts(launch, is_default=True),
        "not_checked": [(needs, " ".join(rules)) for needs, rules in rules_by_need(report)],
    }


def _finding(report: Report, finding: Finding) -> dict[str, Any]:
    found, expected = details_of(finding)
    return {
        "id": finding.id,
        "severity": finding.severity,
        "at": _place(finding.location),
        "title": finding.rule.title,
        "message": finding.problem.message,
        "found": found,
        "expected": expected,
        "fixes": [(fix_text(report.launch, fix), fix.effect) for fix in finding.fixes],
        "why": finding.rule.why,
    }


def _place(place: Location | None) -> str:
    return f"{place.file}:{place.line}" if place else ""


def _facts(launch: Launch, *, is_default: bool) -> list[tuple[str, str, str, str]]:
    """(name, value, origin, place) of each fact that upstream's defaults do not, or do, decide.

    A place in the launch itself is its line alone: `:7`.
    """
    target = launch.reading.target
    return [
        (name, shown_value(fact_value(name, fact)), fact.origin, _place(fact.location).removeprefix(target))
        for name, fact in sorted(launch.facts.items())
        if (fact.origin == "default") is is_default
    ]


def _placed(launch: Launch) -> tuple[PlacedGroups | None, str]:
    """The groups of the launch on its nodes; without them, why."""
    value: Mapping[str, Any] = {name: fact.value for name, fact in launch.facts.items()}
    absent = [name for name in _SIZES if not value.get(name)]
    if absent:
        return None, f"not known: {', '.join(absent)}"
    world = value["world_size"]
    if world > _MOST_RANKS:
        return None, f"{world} ranks: hcp groups --rank R lists those of one rank"
    sizes = value.get("hcp_sizes") if value.get("cp_comm_type") == "a2a+p2p" else None
    try:
        grids = _grids(value)
        place = Placement(world, value["gpus_per_node"], value.get("nvlink_domain"), value.get("placement") or "block")
        placed = PlacedGroups(grids, tuple(sizes or ()), place)
        placed.census()
    except HcpError as error:
        return None, str(error)
    return placed, ""


def _grids(value: Mapping[str, Any]) -> Grids:
    axes = {name: value.get(name) or 1 for name in ("tp", "cp", "pp", "ep", "gtp")}
    order = str(value.get("rank_order") or DEFAULT_ORDER)
    return grids_of(value["world_size"], **axes, etp=value.get("etp") or None, order=order)


def _picture(placed: PlacedGroups | None) -> str | None:
    """The CP groups on their nodes; None without CP, or where a picture has no room."""
    if placed is None or placed.grids.dense.sizes["cp"] == 1:
        return None
    try:
        return groups_image(placed.grids, placed.sizes, placed.place)
    except HcpError:
        return None


def _plan(launch: Launch, options: LoadOptions) -> tuple[Mapping[str, Any] | None, str]:
    """The bars of memory and time as `hcp plan LAUNCH` has them; without them, why."""
    from megatron_hcp.plan.answer import judge
    from megatron_hcp.plan.from_launch import layout_of
    from megatron_hcp.plan.question import question_about

    try:
        asked = question_about(launch, options, {}, None, True)
        layout = layout_of(asked.facts, asked.job.seq_length)
        item = judge(asked.model, layout, asked.job, asked.rates)
    except HcpError as error:
        return None, f"hcp plan needs more: {error}"
    return plan_scene(plan_json(Shown(asked.model, asked.job, asked.rates, [item], asked.taken_for_granted))), ""
