"""The diagnosis of triage as JSON, `hcp.triage/2`."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from megatron_hcp.triage.advice import Attempt, came_back, is_first_collective
from megatron_hcp.triage.collective.collectives import Waited
from megatron_hcp.triage.conclude import Diagnosis
from megatron_hcp.triage.exit_codes import step_of_code
from megatron_hcp.triage.failure import Failure
from megatron_hcp.triage.line import When
from megatron_hcp.triage.remedy.memory import MEMORY, NO_ROOM, memory_steps
from megatron_hcp.triage.remedy.raised import changes
from megatron_hcp.triage.signatures.row import said_text
from megatron_hcp.triage.unclear import UNCLEAR

_CP_NEXT = {
    "off": "hcp check {launch} --select HCP,LOAD",
    "wrong": "hcp check {launch} --select TOPO,SLURM",
    "unknown": "assert in the process, once the model is built, that every TEDotProductAttention has cp_comm_type "
    "'a2a+p2p' and a list of two groups of the planned sizes as its cp_group",
}


def diagnosis_document(diagnosis: Diagnosis, launch: str | None) -> str:
    """The object `hcp.triage/2` as JSON. Everything that is not plain ASCII is escaped: it came from logs."""
    document = json.dumps(diagnosis_json(diagnosis, launch), indent=2, allow_nan=False)
    return document.replace("\x7f", "\\u007f")


def diagnosis_json(diagnosis: Diagnosis, launch: str | None) -> dict[str, Any]:
    """The object `hcp.triage/2` (schemas/hcp.triage.2.json)."""
    failure, advice = diagnosis.failure, diagnosis.advice
    return {
        "schema": "hcp.triage/2",
        "ok": diagnosis.ok,
        "state": diagnosis.state,
        "unclear": _unclear(diagnosis),
        "first_failure": None
        if failure is None
        else {
            "signature": failure.signature.id,
            "rule": rule_of(failure),
            "kind": failure.kind,
            "cause": failure.cause,
            "rank": failure.rank,
            "node": failure.node,
            "local_rank": failure.local_rank,
            "exit_code": failure.exit_code,
            "pid": failure.pid,
            "time": time_text(failure.when),
            "time_is_stated": failure.timed_by == "line",
            "time_source": failure.timed_by,
            "message": failure.message,
            "location": {"file": str(failure.path), "line": failure.line},
            "launcher": failure.launcher or None,
            "ranks": list(failure.ranks),
            "step": failure.step or None,
            "task": failure.task,
            "next": next_steps(failure, diagnosis, launch),
        },
        "recommendation": None
        if advice is None
        else {
            "action": advice.action,
            "node": advice.node,
            "reason": advice.reason,
            "location": None if failure is None else {"file": str(failure.path), "line": failure.line},
        },
        "came_back": came_back(diagnosis.attempts),
        "later_steps": [_later(later) for later in diagnosis.later],
        "attempts": [_attempt(attempt) for attempt in (*diagnosis.attempts, *diagnosis.after)],
        "collective": _collective(diagnosis.waited),
        "context_parallel": {
            "state": diagnosis.cp.state,
            "evidence": [{"says": item.says, "rule": item.rule, "text": item.text} for item in diagnosis.cp.evidence],
            "next": cp_next(diagnosis, launch),
        },
        "also": [{"signature": name, "count": count} for name, count in sorted(diagnosis.noise.items())],
        "dry_run": [refusal._asdict() for refusal in diagnosis.dry_run],
        "survived": diagnosis.survived,
        "steps": diagnosis.steps,
        "left_out": left_out(diagnosis, launch),
        "job": diagnosis.job.id,
        "attempt": diagnosis.job.attempt,
        "files": [str(path) for path in diagnosis.files],
        "dumps": [str(path) for path in diagnosis.dumps],
        "binary": [str(path) for path in diagnosis.binary],
        "bytes": diagnosis.bytes,
    }


def _unclear(diagnosis: Diagnosis) -> dict[str, Any] | None:
    if diagnosis.unclear is None:
        return None
    path, number, text = diagnosis.unnamed or (None, None, None)
    return {
        "why": diagnosis.unclear,
        "location": None if path is None else {"file": str(path), "line": number},
        "message": text,
        "next": [UNCLEAR[diagnosis.unclear][1]],
    }


def _later(failure: Failure) -> dict[str, Any]:
    return {
        "step": failure.step or None,
        "signature": failure.signature.id,
        "cause": failure.cause,
        "message": failure.message,
        "location": {"file": str(failure.path), "line": failure.line},
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    failure = attempt.failure
    return {
        "attempt": attempt.number,
        "signature": failure.signature.id if failure else None,
        "cause": failure.cause if failure else None,
        "rank": failure.rank if failure else None,
        "node": failure.node if failure else None,
        "steps": attempt.steps,
    }


def _collective(waited: Waited | None) -> dict[str, Any] | None:
    if waited is None:
        return None
    return {
        "operation": waited.op,
        "sequence": waited.sequence,
        "group": waited.group,
        "timeout_s": waited.seconds,
        "arrived": list(waited.arrived),
        "missing": list(waited.missing),
        "missing_known": bool(waited.missing),
        "source": waited.source,
        "at": waited.at or None,
        "mismatch": waited.mismatch or None,
    }


_MOST_BINARY = 3
"""Of a folder's files that are no logs, such as checkpoints, so many are named."""


def left_out(diagnosis: Diagnosis, launch: str | None) -> list[str]:
    """What was found and is not used, each with why."""
    found = [f"{what}: the log gives no usable value" for what in sorted(diagnosis.job.unfit)]
    found += [f"{path}:{number}: {what}: the training was done before" for path, number, what in diagnosis.after_done]
    found += [f"{path}:{number}: {what}" for path, number, what in diagnosis.not_finite]
    found += [f"{path}: it does not look like a log" for path in diagnosis.binary[:_MOST_BINARY]]
    if (more := len(diagnosis.binary) - _MOST_BINARY) > 0:
        found.append(f"{more} more {'files do' if more > 1 else 'file does'} not look like logs")
    found += [f"{path}: {why}" for path, why in diagnosis.unread]
    if launch is not None and _word(launch) is None:
        found.append("the launch's name: it has characters that a command line cannot show, so LAUNCH stands for it")
    return found


def rule_of(failure: Failure) -> str | None:
    """The rule of a failure. One that a line of the log names counts only if there is such a rule."""
    from megatron_hcp.rules.registry import BY_ID

    known = failure.rule == failure.signature.rule or failure.rule in BY_ID
    return failure.rule if failure.rule and known else None


def _word(text: str) -> str | None:
    """A text as one word of a command; None where no command can show it."""
    return shlex.quote(f"./{text}" if text.startswith("-") and text != "-" else text) if text.isprintable() else None


_NETWORK = (
    "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET shows each rank's interface: set NCCL_SOCKET_IFNAME and "
    "GLOO_SOCKET_IFNAME to the one that all nodes share, and look for a firewall between them"
)


def next_steps(failure: Failure, diagnosis: Diagnosis, launch: str | None) -> list[str]:
    """The signature's steps, with what is known about the job filled in."""
    from megatron_hcp.rules.registry import BY_ID

    steps = []
    if failure.launcher:
        steps.append(f"read the log of the task that the launcher names first: {failure.launcher}")
    done = diagnosis.attempts[-1].steps
    if is_first_collective(failure, done):
        steps.append(_NETWORK)
    by_code = step_of_code(failure.exit_code) if failure.kind == "report" else ""
    found, says_all = changes(failure)
    own = () if says_all else _own_steps(failure, done)
    found += [(step, {}) for step in (by_code, *own) if step]
    for step, evidence in found:
        if diagnosis.dumps and "TORCH_FR_BUFFER_SIZE" in step:
            continue
        filled = _filled(_unpassed(step, diagnosis), diagnosis, launch, failure, evidence)
        named = re.findall(r"\b(?:explain|--select) ([A-Z]+\d+)\b", filled or "")
        # An entry of the catalogue that no launch can decide: there is nothing to run.
        if filled and all(rule in BY_ID for rule in named):
            steps.append(filled)
    return steps


def _own_steps(failure: Failure, done: int) -> tuple[str, ...]:
    """The steps of the failure's signature; of GPU memory that ran out, those that fit how it did."""
    own = failure.signature.next
    if failure.signature.id != MEMORY:
        return own
    *first, last = memory_steps(failure, done)
    return (*first, *(() if last == NO_ROOM else own[:-1]), last)


_SELECT = re.compile(r"--select ([A-Z0-9,]+)")
_SAVINGS = {
    "context parallelism": "raise context_parallel_size",
    "micro-batch": "lower the micro-batch",
    "recomputation": "turn on full activation recomputation",
}
"""What makes a layout need less memory of a GPU; the names of `CpPlan.saves`."""


def _unpassed(step: str, diagnosis: Diagnosis) -> str:
    """The step without the rules that the launch passes; empty where it selects no other."""
    from megatron_hcp.rules.registry import BY_ID

    chosen = _SELECT.search(step)
    passed = diagnosis.plan.passed
    if chosen is None or not passed:
        return step
    left = [
        name for name in chosen[1].split(",") if any(rule.startswith(name) and rule not in passed for rule in BY_ID)
    ]
    return step.replace(chosen[1], ",".join(left)) if left else ""


def _filled(
    step: str,
    diagnosis: Diagnosis,
    launch: str | None,
    failure: Failure | None = None,
    evidence: Mapping[str, str] = MappingProxyType({}),
) -> str | None:
    """A step with what is known about the job, each value as one word for a shell, and with what the failure's own
    lines say, in one pass: what a log says is never a place to fill. None where its rule is not known."""
    known = {
        "job": diagnosis.job.id or "JOBID",
        "node": (failure.node if failure else None) or "NODE",
        "launch": (_word(launch) if launch else None) or "LAUNCH",
        "rule": rule_of(failure) if failure else None,
        "memory": " or ".join(words for name, words in _SAVINGS.items() if name not in diagnosis.plan.saves),
    } | {name: said_text(text) for name, text in evidence.items()}
    names = re.findall(r"{([a-z]+\d?)}", step)
    if any(not known[name] for name in names if name not in evidence):
        return None
    return re.sub(r"{([a-z]+\d?)}", lambda place: known[place[1]] or "", step)


def cp_next(diagnosis: Diagnosis, launch: str | None) -> list[str]:
    """What to do about the verdict on context parallelism; nothing where a dead job's logs do not show it."""
    if diagnosis.cp.state == "unknown" and (diagnosis.failure is not None or not diagnosis.is_hierarchical):
        return []
    step = _filled(_CP_NEXT.get(diagnosis.cp.state, ""), diagnosis, launch)
    return [step] if step else []


def time_text(when: When | None) -> str | None:
    """A time of a log, without its year: `08-22 10:00:03`."""
    if when is None:
        return None
    month, day, seconds = when
    return f"{month:02}-{day:02} {int(seconds) // 3600:02}:{int(seconds) // 60 % 60:02}:{int(seconds % 60):02}"
