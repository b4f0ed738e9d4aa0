"""Whether a job's own verdict and `hcp triage`, which reads the same logs, say the same."""

from __future__ import annotations

import re
from typing import Any

_STATES = {
    "completed": {"no-failure"},
    "ended-early": {"no-failure", "running", "unclear", "stopped"},
    "undecided": {"no-failure", "running", "unclear"},
    "preempted": {"stopped", "no-failure", "running", "unclear"},
    "terminated": {"stopped", "no-failure", "running", "unclear"},
    "stopped": {"failed"},
    "failed": {"failed"},
}
"""The status of a verdict, and the states of `hcp.triage/2` that do not contradict it."""
_WHO = re.compile(r"^rank (\d+)(?: on (\S+?))?:? ")
"""How a verdict's reason begins that blames a rank."""


def disagreements(verdict: dict[str, Any], triage: dict[str, Any]) -> list[str]:
    """What the two say differently: how the attempt ended, or which rank and node failed first."""
    if not verdict:
        return []
    found = []
    status, first = verdict["status"], triage["first_failure"]
    if triage["state"] not in _STATES[status]:
        found.append(f"{status}, but {triage['state']} ({first and first['signature']})")
    who = _WHO.match(verdict["reason"])
    if status == "failed" and who and first is not None:
        if first["rank"] is not None and first["rank"] != int(who[1]):
            found.append(f"rank {who[1]}, but rank {first['rank']}")
        if first["node"] is not None and who[2] and first["node"] != who[2]:
            found.append(f"{who[2]}, but {first['node']}")
    return found
