"""A skill's example answers test its graders: a right one passes, and at least two wrong ones fail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.skills.evals.grade import faults_of_answer
from megatron_hcp.skills.evals.task import ANSWERS_PATH, Answers, Task, load_answers

_LEAST_WRONG = 2


def faults_of_examples(folder: Path, tasks: Sequence[Task]) -> list[str]:
    """What is wrong with the example answers, one line each: missing, or graded incorrectly.

    Raises:
        HcpError: there are none at all; a wheel contains only the tasks.
    """
    if not (folder / ANSWERS_PATH).exists():
        raise HcpError(
            f"{folder.name} has no example answers here",
            wanted="a checkout",
            do="give --answers or --agent-command instead",
        )
    answers = load_answers(folder)
    faults = []
    for task in tasks:
        right, wrong = answers.get(task.id, Answers())
        if right is None:
            faults.append(f"{task.id}: found no right answer; wanted one that passes")
        else:
            faults += [f"{task.id}: the right answer fails: {fault}" for fault in faults_of_answer(task, right)]
        if len(wrong) < _LEAST_WRONG:
            faults.append(f"{task.id}: found {len(wrong)} wrong answers; wanted at least {_LEAST_WRONG}")
        faults += [
            f"{task.id}: wrong answer {number} passes"
            for number, text in enumerate(wrong, 1)
            if not faults_of_answer(task, text)
        ]
    return faults
