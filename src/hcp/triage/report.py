"""The diagnosis of triage as text and as JSON."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hcp.triage.failure import Failure
from hcp.triage.line import When
from hcp.triage.read import Diagnosis

_CP_WORDS = {
    "on": "on, as far as logs can tell",
    "off": "OFF",
    "wrong": "on, but in other groups than planned",
    "unknown": "unknown: nothing in these logs proves it either way",
}
_CP_NEXT = {
    "off": "hcp check {launch} --select HCP,LOAD",
    "wrong": "hcp check {launch} --select TOPO,SLURM",
    "unknown": "assert in the process, once the model is built, that every TEDotProductAttention has cp_comm_type "
    "'a2a+p2p' and a list of two groups of the planned sizes as its cp_group",
}


SPOOL = "hcp-triage-"
"""How the temporary folder begins that standard input is copied to."""


def shown(path: Path) -> str:
    """A log's name for the reader."""
    return "<stdin>" if path.parent.name.startswith(SPOOL) else str(path)


def diagnosis_json(diagnosis: Diagnosis, launch: str | None) -> dict[str, Any]:
    """The object `hcp.triage/1`."""
    failure = diagnosis.failure
    return {
        "schema": "hcp.triage/1",
        "ok": diagnosis.ok,
        "state": diagnosis.state,
        "first_failure": None
        if failure is None
        else {
            "signature": failure.signature.id,
            "rule": failure.rule or None,
            "kind": failure.signature.role,
            "cause": failure.cause,
            "rank": failure.rank,
            "node": failure.node,
            "local_rank": failure.local_rank,
            "exit_code": failure.exit_code,
            "time": _time(failure.when),
            "message": failure.message,
            "location": {"file": shown(failure.path), "line": diagnosis.line},
            "next": next_steps(failure, diagnosis, launch),
        },
        "context_parallel": {
            "state": diagnosis.cp.state,
            "evidence": [{"says": item.says, "rule": item.rule, "text": item.text} for item in diagnosis.cp.evidence],
            "next": _cp_next(diagnosis, launch),
        },
        "also": [{"signature": name, "count": count} for name, count in sorted(diagnosis.noise.items())],
        "survived": diagnosis.survived,
        "steps": diagnosis.steps,
        "job": diagnosis.job.id,
        "attempt": diagnosis.job.attempt,
        "files": [shown(path) for path in diagnosis.files],
        "bytes": diagnosis.bytes,
    }


def diagnosis_text(diagnosis: Diagnosis, launch: str | None) -> str:
    """A few lines: the first failure and what to do, then the verdict on context parallelism."""
    lines = []
    failure = diagnosis.failure
    if failure is None:
        steps = f", {diagnosis.steps} training steps" if diagnosis.steps else ""
        lines.append(f"no failure in {_count(len(diagnosis.files), 'file')}{steps}")
    else:
        where = f"rank {failure.rank}" if failure.rank is not None else "a rank that the logs do not name"
        if failure.rank is None and failure.local_rank is not None:
            where = f"local rank {failure.local_rank}"
        where += f" on {failure.node}" if failure.node else ""
        when = _time(failure.when)
        lines.append(
            f"first failure: {where}{f' at {when}' if when else ''}: {failure.cause}"
            + (f" [{failure.rule}]" if failure.rule else "")
        )
        lines.append(f"  {shown(failure.path)}:{diagnosis.line}: {_short(failure.message)}")
        if failure.signature.role == "effect":
            lines.append("  this is what others say when a rank is gone: the cause is in no log that was read")
        lines += [f"  next: {step}" for step in next_steps(failure, diagnosis, launch)]
        if diagnosis.noise:
            also = ", ".join(f"{count} x {name}" for name, count in sorted(diagnosis.noise.items()))
            lines.append(f"  after it: {also}")
    if diagnosis.survived:
        lines.append(f"  survived earlier: {_count(diagnosis.survived, 'failure line')}, training went on")
    if failure is None or diagnosis.cp.evidence:
        lines.append(f"context parallelism: {_CP_WORDS[diagnosis.cp.state]}")
        lines += [f"  {item.rule}: {item.text}" for item in diagnosis.cp.evidence]
        lines += [f"  next: {step}" for step in _cp_next(diagnosis, launch)]
    return "\n".join(lines)


def next_steps(failure: Failure, diagnosis: Diagnosis, launch: str | None) -> list[str]:
    """The signature's steps, with what is known about the job filled in."""
    from hcp.rules.registry import BY_ID

    known = {
        "job": diagnosis.job.id or "JOBID",
        "node": failure.node or "NODE",
        "launch": launch or "LAUNCH",
        "rule": failure.rule,
    }
    steps = []
    for step in failure.signature.next:
        named = re.findall(r"\b(?:explain|--select) ([A-Z]+\d+)\b", step)
        if any(rule not in BY_ID for rule in named):
            continue  # an entry of the catalogue that no launch can decide: there is nothing to run
        for name, value in known.items():
            step = step.replace("{" + name + "}", value)
        steps.append(step)
    return steps


def _cp_next(diagnosis: Diagnosis, launch: str | None) -> list[str]:
    step = _CP_NEXT.get(diagnosis.cp.state)
    return [step.replace("{launch}", launch or "LAUNCH")] if step else []


def _time(when: When | None) -> str | None:
    if when is None:
        return None
    month, day, seconds = when
    return f"{month:02}-{day:02} {int(seconds) // 3600:02}:{int(seconds) // 60 % 60:02}:{int(seconds % 60):02}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 160 else text[:157] + "..."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
