"""The diagnosis of triage as text that fits a screen: what came first, where, what says so, what to do, what else."""

from __future__ import annotations

from pathlib import Path

from megatron_hcp.ground.visible import visible
from megatron_hcp.triage.advice import Attempt, came_back
from megatron_hcp.triage.collective.collectives import collective_text
from megatron_hcp.triage.conclude import Diagnosis
from megatron_hcp.triage.failure import Failure
from megatron_hcp.triage.report import cp_next, left_out, next_steps, rule_of, time_text
from megatron_hcp.triage.unclear import UNCLEAR

_CP_WORDS = {
    "on": "on, as far as logs can tell",
    "off": "OFF",
    "wrong": "on, but in other groups than planned",
    "none": "not used: its size is 1",
    "unknown": "unknown: nothing in these logs proves it either way",
}
_TIMES = {
    "line": ", at {}",
    "neighbour": ", at about {} (by the lines around it)",
    "launcher": ", at {} (by torchrun's report)",
}
_ONLY = {
    "effect": "ranks report this when another one is gone; none of the logs that were read shows the cause",
    "report": "this is a launcher's report; none of the logs that were read shows the cause",
}
_MOST_ALSO = 8
_MOST_BEFORE = 3
"""Attempts before the last one that are told each in a line."""


def diagnosis_text(diagnosis: Diagnosis, launch: str | None) -> str:
    """At most a screen. What comes from logs is on one line each, without control characters."""
    failure = diagnosis.failure
    if failure is None:
        steps = f", {_count(diagnosis.steps, 'training step')}" if diagnosis.steps else ""
        dumps = _count(len(diagnosis.dumps), "flight-recorder dump") if diagnosis.dumps else ""
        files = dumps if dumps and not diagnosis.files else _count(len(diagnosis.files), "file")
        done = "; the training finished" if diagnosis.is_done else ""
        last = f"; attempt {diagnosis.attempts[-1].number} is the last" if len(diagnosis.attempts) > 1 else ""
        lines = [f"no failure in {files}{steps}{done}{last}"]
        if diagnosis.unclear:
            lines = ["unclear: " + UNCLEAR[diagnosis.unclear][0].format(files=files, steps=steps)]
            lines += [f"why: {_place(diagnosis.unnamed)}"] if diagnosis.unnamed else []
            if diagnosis.waited and diagnosis.dumps:
                stuck = collective_text(diagnosis.waited, "did not end")
                lines.append(
                    f"  according to the flight-recorder dumps, {visible(stuck)}; {visible(diagnosis.waited.at)}"
                )
            lines.append(f"  next: {UNCLEAR[diagnosis.unclear][1]}")
        lines += _attempts(diagnosis)
    else:
        lines = _failure(failure, diagnosis, launch)
    if diagnosis.survived:
        lines.append(f"training went on after {_count(diagnosis.survived, 'known error line')}")
    if not (failure or diagnosis.unnamed) or diagnosis.cp.state != "unknown":
        lines.append(f"context parallelism: {_CP_WORDS[diagnosis.cp.state]}")
        lines += [f"  {item.rule}: {item.text}" for item in diagnosis.cp.evidence]
        lines += [f"  next: {step}" for step in cp_next(diagnosis, launch)]
    lines += [f"dry run: {refusal.text()}" for refusal in diagnosis.dry_run[:1]]
    lines += [f"left out: {item}" for item in left_out(diagnosis, launch)]
    return "\n".join(map(visible, lines))


def _failure(failure: Failure, diagnosis: Diagnosis, launch: str | None) -> list[str]:
    rule = rule_of(failure)
    what = "stopped from outside" if failure.is_from_outside else "first failure"
    what += f", attempt {diagnosis.attempts[-1].number}" if len(diagnosis.attempts) > 1 or diagnosis.after else ""
    lines = [f"{what}: {failure.cause}" + (f" [{rule}]" if rule else "")]
    lines.append(f"where: {_where(failure, diagnosis.attempts[-1])}")
    lines.append(f"why: {failure.path}:{failure.line}: {_short(failure.message)}")
    if failure.waited and failure.waited.at:
        source = "" if failure.waited.source == "log" else ", according to the flight-recorder dumps"
        lines.append(f"  {failure.waited.at}{source}")
    if failure.kind in _ONLY and not failure.is_from_outside and not (failure.waited and failure.waited.missing):
        lines.append(f"  {_ONLY[failure.kind]}")
    if diagnosis.unnamed:
        lines.append(f"  an unrecognised error above it: {_place(diagnosis.unnamed)}")
    if diagnosis.advice:
        lines.append(f"do: {diagnosis.advice.action.replace('-', ' ')}: {diagnosis.advice.reason}")
    lines += [f"  next: {step}" for step in next_steps(failure, diagnosis, launch)]
    lines += [f"srun step {later.step or 'after it'} failed too: {_short(later.cause)}" for later in diagnosis.later]
    lines += _attempts(diagnosis)
    if diagnosis.noise:
        also = [f"{count} x {name}" for name, count in sorted(diagnosis.noise.items())]
        more = f", {len(also) - _MOST_ALSO} more" if len(also) > _MOST_ALSO else ""
        lines.append(f"also seen: {', '.join(also[:_MOST_ALSO])}{more}")
    return lines


def _place(unnamed: tuple[Path, int, str]) -> str:
    path, number, text = unnamed
    return f"{path}:{number}: {_short(text)}"


def _where(failure: Failure, last: Attempt) -> str:
    where = f"rank {failure.rank}" if failure.rank is not None else "a rank that the logs don't name"
    if failure.rank is None and failure.local_rank is not None:
        where = f"local rank {failure.local_rank}"
    if failure.kind == "effect" and not (failure.waited and failure.waited.missing):
        where = f"seen by {where}"
    where += f" on {failure.node}" if failure.node else ""
    where += f" in task {failure.task} of the job array" if failure.task is not None else ""
    others = len(set(failure.ranks) - {failure.rank})
    if others and not failure.waited:
        where += f" and {_count(others, 'more rank')}"
    when = time_text(failure.when)
    if failure.kind == "cause" and not failure.is_from_outside and last.begins and not last.steps:
        where += ", before the first training step"
    return where + (_TIMES[failure.timed_by].format(when) if when and failure.timed_by else "")


def _attempts(diagnosis: Diagnosis) -> list[str]:
    """How the attempts before the last one ended, the latest first."""
    before = [attempt for attempt in diagnosis.attempts[:-1] if attempt.failure is not None]
    told = before[: -_MOST_BEFORE - 1 : -1]
    ends = [(attempt.number, _short(attempt.failure.cause)) for attempt in diagnosis.after if attempt.failure]
    lines = [f"attempt {number}, started after it, did not train: {cause}" for number, cause in ends[:_MOST_BEFORE]]
    lines += [f"attempt {attempt.number} {_compared(attempt, diagnosis)}" for attempt in told]
    more = len(before) - len(told)
    return [*lines, f"{_count(more, 'attempt')} before that failed too"] if more > 0 else lines


def _compared(attempt: Attempt, diagnosis: Diagnosis) -> str:
    """How an attempt failed, beside the last one."""
    last = diagnosis.attempts[-1]
    cause = _short(attempt.failure.cause) if attempt.failure else ""
    if last.failure is None:
        return f"failed: {cause}"
    return "failed the same way" if came_back((attempt, last)) else f"failed differently: {cause}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 160 else text[:157] + "..."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
