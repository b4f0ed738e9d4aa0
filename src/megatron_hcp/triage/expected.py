"""From a launch to what its logs should show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.triage.is_cp_on import CpPlan

if TYPE_CHECKING:
    from megatron_hcp.core.ranks import RankGroups
    from megatron_hcp.launch.fact import Beside, Dialect, Launch


def plan_of_launch(target: str, dialect: Dialect | None, assumes: tuple[str, ...], beside: Beside) -> CpPlan:
    """What a launch plans, as far as it states it; `dialect` None: detected from the target.

    Raises:
        HcpError: the launch cannot be read.
    """
    from megatron_hcp.launch.load import LoadOptions, load_launch

    launch = load_launch(target, LoadOptions(dialect=dialect, assumes=assumes, beside=beside))
    facts = {name: fact.value for name, fact in launch.facts.items()}
    lost, refused, passed = _checked(launch)
    return _plan(facts)._replace(lost=lost, refused=refused, passed=passed, saves=_saves(facts))


_LOSING = ("HCP001", "HCP010")
"""The rules whose silent findings mean that attention runs without context parallelism."""
_Found = tuple[tuple[str, str], ...]


def _checked(launch: Launch) -> tuple[_Found, _Found, frozenset[str]]:
    """What the rules say of the launch, run once: `CpPlan.lost`, `CpPlan.refused` and `CpPlan.passed`."""
    from megatron_hcp.judge.run import run
    from megatron_hcp.rules.registry import BY_ID
    from megatron_hcp.rules.view import View

    own = [rule for rule in BY_ID.values() if not rule.last]
    done = run(View(launch), own)
    losing = [found for found in done.findings if found.rule.id in _LOSING]
    lost = tuple((found.rule.id, found.problem.message) for found in losing if found.effect == "silent")
    refused = tuple(
        (found.rule.id, f"{found.problem.found}: {found.problem.message}")
        for found in losing
        if found.effect != "silent"
    )
    if launch.unknown:
        return lost, refused, frozenset()  # what the launch hides may be what a rule is about
    open_ones = {found.rule.id for found in done.findings} | {missed.rule.id for missed in done.not_checked}
    return lost, refused, frozenset(rule.id for rule in own) - open_ones


def _saves(facts: dict[str, Any]) -> frozenset[str]:
    """Names of `CpPlan.saves`, each where the launch has no more to give."""
    used = {
        "micro-batch": facts.get("micro_batch_size") == 1,
        "recomputation": facts.get("recompute_granularity") == "full",
    }
    return frozenset(name for name, is_used in used.items() if is_used)


def plan_of_assumptions(assumes: tuple[str, ...]) -> CpPlan:
    """What assumptions alone plan, where no launch is given."""
    from megatron_hcp.launch.options import parse_assumptions

    return _plan({name: fact.value for name, fact in parse_assumptions(assumes).items()})


def _plan(facts: dict[str, Any]) -> CpPlan:
    sizes = facts.get("hcp_sizes") or None
    return CpPlan(facts.get("cp"), sizes, _cp_groups(facts, sizes), facts.get("arch"), bool(facts.get("fp8")))


def _cp_groups(facts: dict[str, Any], sizes: Any) -> RankGroups | None:
    """The CP groups of all ranks, where the levels can be told; nothing is enumerated, however many ranks there are."""
    world, cp = facts.get("world_size"), facts.get("cp")
    if not sizes or not world or not cp:
        return None
    from megatron_hcp.core.levels import check_sizes
    from megatron_hcp.core.ranks import DEFAULT_ORDER, grids_of

    try:
        check_sizes(sizes, cp)
        return grids_of(
            world,
            tp=facts.get("tp") or 1,
            cp=cp,
            pp=facts.get("pp") or 1,
            ep=facts.get("ep") or 1,
            etp=facts.get("etp"),
            gtp=facts.get("gtp") or 1,
            order=facts.get("rank_order") or DEFAULT_ORDER,
        ).groups("cp")
    except HcpError:
        return None  # the launch is wrong, which `hcp check` reports: there is no plan to compare with
