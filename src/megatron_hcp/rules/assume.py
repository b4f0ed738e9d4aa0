"""Assumptions compared with what the launch says."""

from __future__ import annotations

from collections.abc import Sequence

from megatron_hcp.launch.fact import Fact
from megatron_hcp.rules.rule import Example, Problem, rule
from megatron_hcp.rules.upstream import OWN
from megatron_hcp.rules.view import View


@rule(
    "ASSUME001",
    "info note never",
    source=(OWN,),
    applies=lambda v: bool(v.launch.assumed or v.launch.reading.project),
    good=Example("mlm", "--context-parallel-size 2", "te=2.14"),
    bad=Example("mlm", "--context-parallel-size 2", "cp=4"),
    last=True,
)
def assumptions_agree_with_the_launch(v: View) -> Problem | None:
    """Assumptions and .hcp.yaml agree with what the launch says.

    --assume and --facts override the launch, so that a check can try other values. If the launch states a different
    value, the verdict applies to the assumption, not to the job. The launch wins over .hcp.yaml, which wins over the
    versions of the container image; where they differ, one of them is out of date.
    """
    conflicts = v.launch.conflicts
    if not conflicts:
        return None
    name, said, assumed = conflicts[0]
    if assumed.origin == "project":
        return _project(conflicts)
    more = f", and {len(conflicts) - 1} more" if len(conflicts) > 1 else ""
    return Problem(
        message="the check used the assumed value, not the one in the launch: the job may behave differently",
        found=f"{name} is {said.value} in the launch and {assumed.value} by assumption{more}",
        wanted="an assumption only for settings that the launch doesn't state",
        facts=tuple(name for name, _, _ in conflicts),
        location=said.location,
    )


def _project(conflicts: Sequence[tuple[str, Fact, Fact]]) -> Problem:
    name, said, stated = conflicts[0]
    file = stated.location.file if stated.location is not None else ".hcp.yaml"
    more = f", and {len(conflicts) - 1} more" if len(conflicts) > 1 else ""
    return Problem(
        message=f"the check used the {'launch' if said.origin == 'launch' else 'file'}'s value",
        found=f"{name} is {said.value} in the {said.origin} and {stated.value} in {file}{more}",
        wanted="the same in both",
        facts=tuple(name for name, _, _ in conflicts),
        location=said.location,
    )
