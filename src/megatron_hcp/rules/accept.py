"""Findings accepted by a comment in the launch."""

from __future__ import annotations

from megatron_hcp.rules.rule import START, Example, Problem, rule
from megatron_hcp.rules.upstream import OWN
from megatron_hcp.rules.view import View


@rule(
    "ACCEPT001",
    "warning note never",
    source=(OWN,),
    applies=lambda v: bool(v.launch.reading.acceptances),
    good=Example(
        "bridge", "model.context_parallel_size=3  # hcp: ignore=CP001 padded by our own loader\nmodel.seq_length=4096\n"
    ),
    bad=Example(
        "bridge", "model.context_parallel_size=4  # hcp: ignore=CP001 padded by our own loader\nmodel.seq_length=4096\n"
    ),
    last=True,
)
def acceptances_accept_something(v: View) -> Problem | None:
    """Each accepting comment names a rule and a reason, and matches a finding.

    A comment '# hcp: ignore=RULE reason' beside a key, or on the line above it, accepts that rule's finding. A comment
    without a reason, with an unknown rule id, or for a rule that reports nothing has no effect now, but may hide a
    finding later.
    """
    for acceptance in v.launch.reading.acceptances:
        rule, _, guard = acceptance.rule.partition("/")
        if rule.startswith(START) and rule in v.rule_ids and not guard:
            message = "this comment has no effect: the rule stands for many refusals of upstream"
            wanted = f"{rule}/GUARD, as the finding prints it"
        elif rule not in v.rule_ids or (guard and not rule.startswith(START)):
            message, wanted = "this comment has no effect: there is no such rule", "a rule's id"
        elif not acceptance.reason:
            message, wanted = "this comment has no effect: it gives no reason", "a reason after the rule's id"
        elif acceptance in v.unused:
            message, wanted = "this comment has no effect: the rule reports nothing here", "no comment"
        else:
            continue
        return Problem(
            message,
            f"# hcp: ignore={acceptance.rule} {acceptance.reason}".rstrip(),
            wanted,
            (),
            location=acceptance.location,
        )
    return None
