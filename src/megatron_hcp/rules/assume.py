"""Assumptions compared with what the launch says."""

from __future__ import annotations

from megatron_hcp.rules.rule import Example, Problem, rule
from megatron_hcp.rules.upstream import OWN
from megatron_hcp.rules.view import View


@rule(
    "ASSUME001",
    "info note never",
    source=(OWN,),
    applies=lambda v: bool(v.launch.assumed),
    good=Example("mlm", "--context-parallel-size 2", "te=2.14"),
    bad=Example("mlm", "--context-parallel-size 2", "cp=4"),
    last=True,
)
def assumptions_agree_with_the_launch(v: View) -> Problem | None:
    """Assumptions agree with what the launch says.

    --assume and --facts override the launch, so that a check can try other values. If the launch states a different
    value, the verdict applies to the assumption, not to the job.
    """
    conflicts = v.launch.conflicts
    if not conflicts:
        return None
    name, said, assumed = conflicts[0]
    more = f", and {len(conflicts) - 1} more" if len(conflicts) > 1 else ""
    return Problem(
        message="the check used the assumed value, not the one in the launch: the job may behave differently",
        found=f"{name} is {said.value} in the launch and {assumed.value} by assumption{more}",
        wanted="an assumption only for settings that the launch doesn't state",
        facts=tuple(name for name, _, _ in conflicts),
        location=said.location,
    )
