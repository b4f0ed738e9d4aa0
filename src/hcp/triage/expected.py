"""From a launch to what its logs should show."""

from __future__ import annotations

from typing import Any

from hcp.core.errors import HcpError
from hcp.triage.is_cp_on import Plan


def plan_of_launch(target: str, launcher: str, assumes: tuple[str, ...]) -> Plan:
    """The plan of a launch, as far as it says.

    Raises:
        HcpError: the launch cannot be read.
    """
    from hcp.launch.load import LoadOptions, load_launch

    dialect: Any = None if launcher == "auto" else launcher
    launch = load_launch(target, LoadOptions(dialect=dialect, assumes=assumes))
    return _plan({name: fact.value for name, fact in launch.facts.items()})


def plan_of_assumptions(assumes: tuple[str, ...]) -> Plan:
    """The plan that `--assume` alone states."""
    from hcp.launch.options import parse_assumptions

    return _plan({name: fact.value for name, fact in parse_assumptions(assumes).items()})


def _plan(facts: dict[str, Any]) -> Plan:
    comm = facts.get("cp_comm_type")
    kinds = tuple(dict.fromkeys(str(item) for item in (comm if isinstance(comm, tuple) else (comm,)) if item))
    sizes = facts.get("hcp_sizes") or None
    return Plan(facts.get("cp"), sizes, kinds, _levels(facts, sizes), facts.get("arch"), bool(facts.get("fp8")))


def _levels(facts: dict[str, Any], sizes: Any) -> tuple[tuple[tuple[int, ...], ...], ...]:
    world, cp = facts.get("world_size"), facts.get("cp")
    if not sizes or not world or not cp:
        return ()
    from hcp.core.levels import all_levels_of
    from hcp.core.ranks import DEFAULT_ORDER, grids_of

    try:
        grids = grids_of(
            world,
            tp=facts.get("tp") or 1,
            cp=cp,
            pp=facts.get("pp") or 1,
            ep=facts.get("ep") or 1,
            etp=facts.get("etp"),
            gtp=facts.get("gtp") or 1,
            order=facts.get("rank_order") or DEFAULT_ORDER,
        )
        levels = all_levels_of(grids.groups("cp"), sizes)
    except HcpError:
        return ()  # the launch is wrong: `hcp check` says so; there is no plan to compare with
    return tuple(tuple(tuple(group) for group in level) for level in levels)
