"""Every task with a grader has answers that prove it: the right one passes, each wrong one fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.skills.card import skill_dirs
from megatron_hcp.skills.evals.examples import faults_of_examples
from megatron_hcp.skills.evals.task import KINDS, load_tasks

SKILLS = skill_dirs()


@pytest.mark.parametrize("folder", SKILLS, ids=lambda folder: folder.name)
def test_the_example_answers_prove_the_graders(folder: Path) -> None:
    assert faults_of_examples(folder, load_tasks(folder)) == []


@pytest.mark.parametrize("folder", SKILLS, ids=lambda folder: folder.name)
def test_a_skill_has_twelve_tasks_a_quarter_of_them_negative(folder: Path) -> None:
    tasks = load_tasks(folder)
    negative = [task for task in tasks if task.skill != folder.name]
    assert len(tasks) >= 12 and 4 * len(negative) >= len(tasks)
    assert {task.grade.kind for task in tasks} == set(KINDS)
    assert all(task.grade.kind == "none" for task in negative)
    kinds = {task.id.partition("-")[0] for task in tasks}
    assert kinds == {"explicit", "implicit", "contextual", "negative"}


def test_an_answer_belongs_to_a_task() -> None:
    for folder in SKILLS:
        ids = {task.id for task in load_tasks(folder)}
        assert {path.name for path in (folder / "evals" / "answers").iterdir()} == ids
