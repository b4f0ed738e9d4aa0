"""Graded runs of an agent with and without a skill, and the table of what the skill is worth.

A run is a line of JSON in a folder. Files may be added while an evaluation goes on, and a later line replaces an
earlier one of the same agent, task, arm and attempt: an evaluation can be resumed, and looked at before it is complete.
Dimensions and settings are named as in the BENCHMARK.md files of Megatron-Bridge's skills.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import read_text
from megatron_hcp.ground.schema import TEXT, TEXTS, Fields, Leaf, checked, is_number, one_of, whole
from megatron_hcp.ground.visible import visible
from megatron_hcp.skills.evals.run import ARMS, Arm

RESAMPLES = 10_000
_LEVEL = 0.95
_MAX_BYTES = 50_000_000
_COUNT = whole(0, 10**12)
_SHARE = Leaf("a share from 0 to 1", lambda value: is_number(value) and 0 <= value <= 1)
_RUN = Fields(
    {"task": TEXT, "arm": one_of(ARMS), "attempt": whole(1, 1000), "agent": TEXT, "score": _SHARE},
    {"tokens": _COUNT, "steps": _COUNT, "date": TEXT, "missed": TEXTS},
)


class GradedRun(NamedTuple):
    """One graded answer; the score is a share from 0 to 1, `missed` the grading points that the answer lacks."""

    agent: str
    task: str
    arm: Arm
    attempt: int
    score: float
    tokens: int | None = None
    steps: int | None = None
    date: str | None = None
    missed: Sequence[str] = ()


class Effect(NamedTuple):
    """What the skill changes for an agent, over the tasks that have runs in both arms.

    Attributes:
        tasks, runs: how many tasks, and runs of them.
        shares: the mean score with and without the skill; a task counts once, whatever its attempts.
        lift: their difference, or None without a task in both arms.
        interval: 95 % of 10,000 resamples of the tasks have a lift in it; None below two tasks.
        tokens, steps: means with and without, where the runs state them.
    """

    agent: str
    tasks: int
    runs: int
    shares: dict[Arm, float | None]
    lift: float | None
    interval: tuple[float, float] | None
    tokens: dict[Arm, float | None]
    steps: dict[Arm, float | None]


def read_runs(folder: str) -> list[GradedRun]:
    """The runs in the folder's *.jsonl files, in the order of their names.

    Raises:
        HcpError: the folder holds no run, or a line is not one.
    """
    runs: dict[tuple[str, str, str, int], GradedRun] = {}
    for path in sorted(Path(folder).glob("*.jsonl")):
        text = read_text(str(path), "graded runs, a JSON object per line", limit=_MAX_BYTES)
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                run = _run(line, str(path), number)
                runs[run.agent, run.task, run.arm, run.attempt] = run
    if not runs:
        raise HcpError(
            f"{visible(folder)} has no graded runs", wanted="*.jsonl files", do="write them as docs/agents.md says"
        )
    return list(runs.values())


def _run(line: str, path: str, number: int) -> GradedRun:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise HcpError(f"{visible(path)}:{number} is not JSON", wanted="an object with task, arm and score") from None
    checked(data, _RUN, path, number)
    return GradedRun(**data)


def effects(runs: Iterable[GradedRun]) -> list[Effect]:
    """The effect for each agent, in the order of their names."""
    by_agent: dict[str, list[GradedRun]] = {}
    for run in runs:
        by_agent.setdefault(run.agent, []).append(run)
    return [_effect(agent, by_agent[agent]) for agent in sorted(by_agent)]


def _effect(agent: str, runs: Sequence[GradedRun]) -> Effect:
    names = {arm: {run.task for run in runs if run.arm == arm} for arm in ARMS}
    tasks = sorted(names["with"] & names["without"])
    paired = [run for run in runs if run.task in tasks]
    scores = {
        arm: [fmean(run.score for run in paired if (run.task, run.arm) == (task, arm)) for task in tasks]
        for arm in ARMS
    }
    gains = [one - other for one, other in zip(scores["with"], scores["without"])]
    return Effect(
        agent,
        len(tasks),
        len(paired),
        {arm: _mean(scores[arm]) for arm in ARMS},
        _mean(gains),
        _interval(gains),
        {arm: _mean([run.tokens for run in paired if run.arm == arm and run.tokens is not None]) for arm in ARMS},
        {arm: _mean([run.steps for run in paired if run.arm == arm and run.steps is not None]) for arm in ARMS},
    )


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _interval(gains: Sequence[float]) -> tuple[float, float] | None:
    """The middle 95 % of the means of resampled tasks; the same for the same gains."""
    if len(gains) < 2:
        return None
    draw = random.Random(len(gains))
    means = sorted(fmean(draw.choices(gains, k=len(gains))) for _ in range(RESAMPLES))
    cut = round(RESAMPLES * (1 - _LEVEL) / 2)
    return means[cut], means[-1 - cut]


def benchmark_data(skill: str, digest: str, runs: Sequence[GradedRun]) -> dict[str, Any]:
    """The table as `hcp.skills-benchmark/1`."""
    return {
        "schema": "hcp.skills-benchmark/1",
        "skill": skill,
        "digest": digest,
        "evaluation_date": max((run.date for run in runs if run.date), default=None),
        "attempts_per_task": max(run.attempt for run in runs),
        "agents": [effect._asdict() for effect in effects(runs)],
    }


def benchmark_lines(data: dict[str, Any]) -> list[str]:
    """The table in Markdown, as it stands in a skill's evals/BENCHMARK.md."""
    lines = [
        "# Evaluation Report",
        "",
        f"- Skill: `{data['skill']}` (digest {data['digest'][:12]})",
        f"- Evaluation date: {data['evaluation_date'] or 'not stated'}",
        f"- Attempts per task: {data['attempts_per_task']}",
        "- Arms: the same agent with and without the skill; tasks without a run in both arms are left out",
        f"- Interval: 95 %, {RESAMPLES:,} resamples of the tasks",
        "",
        "| Agent | Num | With | Without | Effectiveness (uplift) | Interval | Tokens | Steps |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for effect in data["agents"]:
        num, shares = f"{effect['tasks']} tasks, {effect['runs']} runs", effect["shares"]
        lift = "-" if effect["lift"] is None else f"{100 * effect['lift']:+.0f}%"
        interval = (
            "-" if not effect["interval"] else "{:+.0f} to {:+.0f}".format(*(100 * x for x in effect["interval"]))
        )
        cells = (visible(effect["agent"]).replace("|", "/"), num, _percent(shares["with"]), _percent(shares["without"]))
        lines.append(
            "| " + " | ".join((*cells, lift, interval, _both(effect["tokens"]), _both(effect["steps"]))) + " |"
        )
    return lines


def missed_lines(runs: Sequence[GradedRun]) -> list[str]:
    """What answers with the skill lacked, for who mends it: Markdown after the table, or nothing."""
    missed = [
        f"- {visible(run.task)}, {visible(run.agent)}: {visible(point)}"
        for run in runs
        if run.arm == "with"
        for point in run.missed
    ]
    return ["", "## Missed with the skill", "", *missed] if missed else []


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f}%"


def _both(means: dict[str, float | None]) -> str:
    """Means with and without the skill, such as `3,100 / 5,200`."""
    return " / ".join("-" if means[arm] is None else f"{means[arm]:,.0f}" for arm in ARMS)
