"""`hcp skills eval`: measures what a skill is worth, from an agent's answers with and without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from megatron_hcp.cli.completion import complete_skills
from megatron_hcp.cli.options import format_option
from megatron_hcp.cli.reports.json import dump
from megatron_hcp.cli.screen import is_terminal, say
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.signals import ends_cleanly
from megatron_hcp.ground.visible import visible
from megatron_hcp.skills.card import find_skill, skill_dirs
from megatron_hcp.skills.evals.task import Task
from megatron_hcp.skills.skill import front_matter


@click.command(name="eval")
@click.argument("skill", shell_complete=complete_skills)
@click.option("--answers", metavar="FILE", help="JSON lines with task, arm (with or without) and answer.")
@click.option("--agent-command", metavar="COMMAND", help="Ask this agent instead: prompt on stdin, answer on stdout.")
@click.option("--timeout", default=600.0, show_default=True, help="Time limit for one answer, in seconds.")
@click.option(
    "--runs", metavar="FOLDER", help="Tabulate graded runs instead: JSON lines in *.jsonl, see docs/agents.md."
)
@click.option(
    "-o", "keep", metavar="FILE", help="Also write the answers, as --answers accepts them; with --runs the table."
)
@click.option("--triggers", is_flag=True, help="Ask which skill the agent would open, given only the descriptions.")
@format_option("text", "json")
def evaluate(
    skill: str,
    answers: str | None,
    agent_command: str | None,
    timeout: float,
    runs: str | None,
    keep: str | None,
    triggers: bool,
    fmt: str,
) -> int:
    """Grade an agent's answers to the tasks of a skill, with and without the skill.

    Code grades the answers; they are never run. The lift is the share of tasks that pass with the skill minus the
    share that pass without it. With neither --answers nor --agent-command, the example answers that come with the
    tasks are graded: each right one must pass and each wrong one must fail. Exits with 1 if one does not, or if an
    answer with the skill fails.

    With --triggers, the agent chooses for each task among the pack's skills and SKILL. The right choice is the skill
    that the task is for, or none if no skill fits. These answers have the arm `with`.

    With --runs, runs that were graded elsewhere are tabulated, complete or not: scores with and without the skill, the
    lift with its interval, tokens and steps. Exits with 0.
    """
    from megatron_hcp.skills.evals.task import load_tasks

    if answers is not None and agent_command is not None:
        raise HcpError("found --answers and --agent-command", wanted="one of them", do="leave one out")
    folder = find_skill(skill)
    if runs is not None:
        if answers is not None or agent_command is not None or triggers:
            raise HcpError("found --runs with other answers", wanted="one of them", do="leave one out")
        return _tabulate(folder, runs, keep, fmt)
    tasks = load_tasks(folder)
    if triggers:
        return _triggers(folder, tasks, answers, agent_command, timeout, keep, fmt)
    if answers is None and agent_command is None:
        from megatron_hcp.skills.evals.examples import faults_of_examples

        faults = faults_of_examples(folder, tasks)
        _print(
            {"schema": "hcp.skills-examples/1", "skill": folder.name, "ok": not faults, "faults": faults}, fmt, faults
        )
        return 1 if faults else 0
    from megatron_hcp.skills.evals.run import asked, graded, read_answers, summary, written_answer
    from megatron_hcp.skills.installed import digest_of

    given = []
    if answers is not None:
        given = read_answers(answers)
    with ends_cleanly():
        for answer in asked(tasks, [folder], agent_command, timeout) if agent_command is not None else ():
            given.append(answer)
            if is_terminal(err=True):
                say([f"{len(given)} of {2 * len(tasks)} answers"], err=True)
    if keep is not None:
        _write(keep, "".join(written_answer(answer) for answer in given))
    results = graded(tasks, given)
    totals = summary(results)
    data = {
        "schema": "hcp.skills-eval/1",
        "skill": folder.name,
        "digest": digest_of(folder),
        **totals,
        "answers": [
            {"task": item.answer.task, "arm": item.answer.arm, "passed": not item.faults, "faults": list(item.faults)}
            for item in results
        ],
    }
    lines = [f"{item.answer.task} ({item.answer.arm}): {'; '.join(item.faults) or 'passed'}" for item in results] + [
        f"{arm} the skill: {totals[arm]['passed']} of {totals[arm]['asked']} tasks" for arm in ("with", "without")
    ]
    if totals["lift"] is not None:
        lines.append(f"lift: {100 * totals['lift']:+.0f} points")
    _print(data, fmt, lines)
    return 1 if any(item.faults and item.answer.arm == "with" for item in results) else 0


def _tabulate(folder: Path, runs: str, keep: str | None, fmt: str) -> int:
    from megatron_hcp.skills.evals.benchmark import benchmark_data, benchmark_lines, missed_lines, read_runs
    from megatron_hcp.skills.installed import digest_of

    if keep is not None and keep.endswith(".jsonl"):
        raise HcpError(f"found -o {visible(keep)} with --runs", wanted="a page, such as BENCHMARK.md", do="rename it")
    found = read_runs(runs)
    data = benchmark_data(folder.name, digest_of(folder), found)
    lines = benchmark_lines(data) + missed_lines(found)
    if keep is not None:
        _write(keep, "\n".join(lines) + "\n")
    _print(data, fmt, lines)
    return 0


def _triggers(
    folder: Path,
    tasks: list[Task],
    answers: str | None,
    agent_command: str | None,
    timeout: float,
    keep: str | None,
    fmt: str,
) -> int:
    from megatron_hcp.skills.evals.run import chosen, graded, read_answers, written_answer
    from megatron_hcp.skills.evals.trigger import faults_of_choice
    from megatron_hcp.skills.installed import digest_of

    skills = {one.name: one for one in (*skill_dirs(), folder)}
    descriptions = {name: str(front_matter(one)[0]["description"]) for name, one in skills.items()}
    if answers is not None:
        given = read_answers(answers)
    elif agent_command is not None:
        with ends_cleanly():
            given = list(chosen(tasks, descriptions, agent_command, timeout))
    else:
        raise HcpError("found --triggers alone", wanted="an agent that chooses", do="add --agent-command or --answers")
    if keep is not None:
        _write(keep, "".join(written_answer(answer) for answer in given))
    names = list(descriptions)
    results = graded(tasks, given, lambda task, answer: faults_of_choice(task, answer.text, names))
    right = sum(not item.faults for item in results)
    data = {
        "schema": "hcp.skills-triggers/1",
        "skill": folder.name,
        "digest": digest_of(folder),
        "right": right,
        "asked": len(results),
        "answers": [
            {"task": item.answer.task, "passed": not item.faults, "faults": list(item.faults)} for item in results
        ],
    }
    lines = [f"{item.answer.task}: {'; '.join(item.faults) or 'passed'}" for item in results]
    _print(data, fmt, [*lines, f"right skill: {right} of {len(results)} tasks"])
    return 0 if right == len(results) else 1


def _print(data: dict[str, Any], fmt: str, lines: list[str]) -> None:
    if fmt == "json":
        click.echo(dump(data))
    else:
        say(lines or ["ok"])


def _write(path: str, text: str) -> None:
    from megatron_hcp.ground.files import write_whole

    try:
        write_whole(path, text)
    except OSError as error:
        raise HcpError(f"cannot write {path}: {error.strerror}", do="name a file in a folder that exists") from None
