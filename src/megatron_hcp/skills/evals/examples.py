"""A skill's example answers test its graders: a right one passes, and at least two wrong ones fail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.skills.evals.grade import faults_of_answer
from megatron_hcp.skills.evals.task import Task, example_answers

_LEAST_WRONG = 2


def faults_of_examples(folder: Path, tasks: Sequence[Task]) -> list[str]:
    """What is wrong with the example answers, one line each: missing, or graded incorrectly.

    Raises:
        HcpError: there are none at all; a wheel contains only the tasks.
    """
    if not (folder / "evals" / "answers").is_dir():
        raise HcpError(
            f"{folder.name} has no example answers here",
            wanted="a checkout",
            do="give --answers or --agent-command instead",
        )
    faults = []
    for task in tasks:
        answers = example_answers(folder, task)
        right = answers.pop("right", None)
        if right is None:
            faults.append(f"{task.id}: found no right.md; wanted an answer that passes")
        else:
            faults += [f"{task.id}: the right answer fails: {fault}" for fault in faults_of_answer(task, right)]
        if len(answers) < _LEAST_WRONG:
            faults.append(f"{task.id}: found {len(answers)} wrong answers; wanted at least {_LEAST_WRONG}")
        faults += [f"{task.id}: {name} passes" for name, text in answers.items() if not faults_of_answer(task, text)]
    return faults
