"""Answers to a skill's tasks, from a file or an agent's command, and their score."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from megatron_hcp.ground.child import MAX_OUTPUT, run_child
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import read_text
from megatron_hcp.ground.schema import STRING, TEXT, Fields, checked, one_of
from megatron_hcp.skills.evals.grade import faults_of_answer
from megatron_hcp.skills.evals.task import Task
from megatron_hcp.skills.evals.trigger import trigger_prompt
from megatron_hcp.skills.install import install_skills
from megatron_hcp.skills.installed import AGENT_FOLDERS

Arm = Literal["with", "without"]
ARMS: tuple[Arm, ...] = ("with", "without")
_ANSWER = Fields({"task": TEXT, "arm": one_of(ARMS), "answer": STRING}, {"used": TEXT})
_MAX_BYTES = 50_000_000


class AgentAnswer(NamedTuple):
    """An agent's answer to a task, with or without the skill installed; `used` is the skill that it opened."""

    task: str
    arm: Arm
    text: str
    used: str | None = None


class Graded(NamedTuple):
    """An answer and its faults; without faults, it passed."""

    answer: AgentAnswer
    faults: tuple[str, ...]


def read_answers(path: str) -> list[AgentAnswer]:
    """The answers in a file: a JSON object with task, arm (with, without) and answer on each line.

    Raises:
        HcpError: the file cannot be read, or a line is not an answer.
    """
    answers = []
    for number, line in enumerate(read_text(path, "answers, a JSON object per line", limit=_MAX_BYTES).splitlines(), 1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            raise HcpError(f"{path}:{number} is not JSON", wanted="an object with task, arm and answer") from None
        checked(data, _ANSWER, path, number)
        answers.append(AgentAnswer(data["task"], data["arm"], data["answer"], data.get("used")))
    return answers


def written_answer(answer: AgentAnswer) -> str:
    """The line of a file that `read_answers` reads."""
    data = {"task": answer.task, "arm": answer.arm, "answer": answer.text}
    return json.dumps(data | ({"used": answer.used} if answer.used else {})) + "\n"


def asked(tasks: Sequence[Task], skills: Sequence[Path], command: str, timeout_s: float) -> Iterator[AgentAnswer]:
    """Asks an agent twice per task: in an empty folder with the skills installed, and in one without.

    The command gets the prompt on standard input and prints the answer.

    Raises:
        HcpError: the command cannot be started, fails, or takes longer.
    """
    words = shlex.split(command)
    for task in tasks:
        for arm in ARMS:
            with tempfile.TemporaryDirectory(prefix="hcp-eval-") as folder:
                if arm == "with":
                    for place in dict.fromkeys(AGENT_FOLDERS.values()):
                        list(install_skills(skills, Path(folder, place), force=False, given=True))
                yield AgentAnswer(task.id, arm, _said(words, task.prompt, folder, timeout_s))


def chosen(
    tasks: Sequence[Task], descriptions: Mapping[str, str], command: str, timeout_s: float
) -> Iterator[AgentAnswer]:
    """Asks an agent, for each task, which skill it would open, given only names and descriptions, in an empty folder.

    Raises:
        HcpError: as for `asked`.
    """
    words = shlex.split(command)
    for task in tasks:
        with tempfile.TemporaryDirectory(prefix="hcp-eval-") as folder:
            yield AgentAnswer(task.id, "with", _said(words, trigger_prompt(task, descriptions), folder, timeout_s))


def _said(words: Sequence[str], prompt: str, folder: str, timeout_s: float) -> str:
    name = os.path.basename(words[0]) if words else "nothing"
    try:
        done = run_child(words, input=prompt, folder=folder, timeout_s=timeout_s)
    except (OSError, IndexError, ValueError) as error:
        raise HcpError(
            f"--agent-command: cannot start {name} ({error})", wanted="a program and its arguments"
        ) from None
    if done.status is None:
        limit = f"took longer than {timeout_s:g} s" if done.why == "time" else f"printed more than {MAX_OUTPUT:,} bytes"
        raise HcpError(f"--agent-command: {name} {limit}", wanted="an answer")
    if done.status:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise HcpError(f"--agent-command: {name} ended with {done.status}: {last}", wanted="an answer")
    return done.stdout


def graded(
    tasks: Sequence[Task],
    answers: Sequence[AgentAnswer],
    faults: Callable[[Task, AgentAnswer], list[str]] = lambda task, answer: faults_of_answer(
        task, answer.text, answer.used
    ),
) -> list[Graded]:
    """Each answer with its faults, in the order of the tasks.

    Raises:
        HcpError: an answer is for an unknown task, or a task has two answers in one arm.
    """
    by_id = {task.id: task for task in tasks}
    seen: set[tuple[str, str]] = set()
    for answer in answers:
        if answer.task not in by_id:
            raise HcpError(f"found an answer to {answer.task}", wanted=f"one of {', '.join(by_id)}")
        if (answer.task, answer.arm) in seen:
            raise HcpError(f"found two answers to {answer.task} {answer.arm} the skill", wanted="one")
        seen.add((answer.task, answer.arm))
    order = list(by_id)
    return [
        Graded(answer, tuple(faults(by_id[answer.task], answer)))
        for answer in sorted(answers, key=lambda answer: (order.index(answer.task), answer.arm))
    ]


def summary(results: Sequence[Graded]) -> dict[str, Any]:
    """Tasks passed and asked in each arm; the lift is the difference of the shares over tasks answered in both arms."""
    arms = {
        arm: {result.answer.task: not result.faults for result in results if result.answer.arm == arm} for arm in ARMS
    }
    both = arms["with"].keys() & arms["without"].keys()
    lift = sum(arms["with"][task] - arms["without"][task] for task in both) / len(both) if both else None
    return {
        **{arm: {"passed": sum(passed.values()), "asked": len(passed)} for arm, passed in arms.items()},
        "lift": lift,
    }
