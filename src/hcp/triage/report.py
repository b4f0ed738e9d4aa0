"""The diagnosis of triage as text and as JSON."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from hcp.core.visible import visible
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


def diagnosis_document(diagnosis: Diagnosis, launch: str | None) -> str:
    """The object `hcp.triage/1` as JSON. Everything that is not plain ASCII is escaped: it came from logs."""
    document = json.dumps(diagnosis_json(diagnosis, launch), indent=2, allow_nan=False)
    return document.replace("\x7f", "\\u007f")


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
            "rule": _rule(failure),
            "kind": failure.signature.role,
            "cause": failure.cause,
            "rank": failure.rank,
            "node": failure.node,
            "local_rank": failure.local_rank,
            "exit_code": failure.exit_code,
            "time": _time(failure.when),
            "message": failure.message,
            "location": {"file": str(failure.path), "line": failure.line},
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
        "left_out": left_out(diagnosis, launch),
        "job": diagnosis.job.id,
        "attempt": diagnosis.job.attempt,
        "files": [str(path) for path in diagnosis.files],
        "binary": [str(path) for path in diagnosis.binary],
        "bytes": diagnosis.bytes,
    }


def diagnosis_text(diagnosis: Diagnosis, launch: str | None) -> str:
    """A few lines: the first failure and what to do, then the verdict on context parallelism.

    What comes from logs is on one line each, without control characters.
    """
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
            + (f" [{_rule(failure)}]" if _rule(failure) else "")
        )
        lines.append(f"  {failure.path}:{failure.line}: {_short(failure.message)}")
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
    lines += [f"left out: {item}" for item in left_out(diagnosis, launch)]
    return "\n".join(map(visible, lines))


def left_out(diagnosis: Diagnosis, launch: str | None) -> list[str]:
    """What was found and is not used, each with why."""
    found = [f"{what}: the log states none that can be meant" for what in sorted(diagnosis.job.unfit)]
    found += [f"{path}: it begins like no log" for path in diagnosis.binary]
    if launch is not None and _word(launch) is None:
        found.append("the launch's name: it has characters that no command line shows; LAUNCH stands for it")
    return found


def _rule(failure: Failure) -> str | None:
    """The rule of a failure. One that a line of the log names counts only if there is such a rule."""
    from hcp.rules.registry import BY_ID

    known = failure.rule == failure.signature.rule or failure.rule in BY_ID
    return failure.rule if failure.rule and known else None


def _word(text: str) -> str | None:
    """A text as one word of a command; None where no command can show it."""
    return shlex.quote(f"./{text}" if text.startswith("-") and text != "-" else text) if text.isprintable() else None


def next_steps(failure: Failure, diagnosis: Diagnosis, launch: str | None) -> list[str]:
    """The signature's steps, with what is known about the job filled in."""
    from hcp.rules.registry import BY_ID

    steps = []
    for step in failure.signature.next:
        filled = _filled(step, diagnosis, launch, failure)
        named = re.findall(r"\b(?:explain|--select) ([A-Z]+\d+)\b", filled or "")
        # An entry of the catalogue that no launch can decide: there is nothing to run.
        if filled is not None and all(rule in BY_ID for rule in named):
            steps.append(filled)
    return steps


def _filled(step: str, diagnosis: Diagnosis, launch: str | None, failure: Failure | None = None) -> str | None:
    """A step with what is known about the job, each value as one word for a shell; None where its rule is not known."""
    known = {
        "job": diagnosis.job.id or "JOBID",
        "node": (failure.node if failure else None) or "NODE",
        "launch": (_word(launch) if launch else None) or "LAUNCH",
        "rule": _rule(failure) if failure else None,
    }
    names = re.findall(r"{([a-z]+)}", step)
    if any(not known[name] for name in names):
        return None
    return re.sub(r"{([a-z]+)}", lambda place: known[place[1]] or "", step)


def _cp_next(diagnosis: Diagnosis, launch: str | None) -> list[str]:
    step = _filled(_CP_NEXT.get(diagnosis.cp.state, ""), diagnosis, launch)
    return [step] if step else []


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
