"""What was assumed, against what the launch says."""

from __future__ import annotations

from hcp.rules.rule import Example, Problem, rule
from hcp.rules.upstream import OWN
from hcp.rules.view import View


@rule(
    "ASSUME001",
    severity="info",
    effect="note",
    stage="never",
    source=(OWN,),
    applies=lambda v: bool(v.launch.assumed),
    good=Example("mlm", "--context-parallel-size 2", "te=2.14"),
    bad=Example("mlm", "--context-parallel-size 2", "cp=4"),
    last=True,
)
def assumptions_agree_with_the_launch(v: View) -> Problem | None:
    """Assumptions agree with what the launch says.

    --assume and --facts win over the launch, so that a check can try other values. Where the launch states another
    value, the verdict is about the assumption and not about the job.
    """
    conflicts = v.launch.conflicts
    if not conflicts:
        return None
    name, said, assumed = conflicts[0]
    more = f", and {len(conflicts) - 1} more" if len(conflicts) > 1 else ""
    return Problem(
        message="the check used what was assumed, not what the launch says: the job may differ",
        found=f"{name} is {said.value} in the launch and {assumed.value} by assumption{more}",
        wanted="an assumption about what the launch leaves open",
        facts=tuple(name for name, _, _ in conflicts),
        location=said.location,
    )


RULES = (assumptions_agree_with_the_launch,)
