"""Every task with a grader has answers that prove it: the right one passes, each wrong one fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hcp.cards.card import skill_dirs
from hcp.cards.evals.examples import faults_of_examples
from hcp.cards.evals.task import KINDS, load_tasks

NOT_YET_GRADED = {
    "dynamic-context-parallel",
    "slurm-multi-node-launch",
    "training-resiliency",
}
"""Skills whose tasks have no graders yet."""
GRADED = [folder for folder in skill_dirs() if folder.name not in NOT_YET_GRADED]


@pytest.mark.parametrize("folder", GRADED, ids=lambda folder: folder.name)
def test_the_example_answers_prove_the_graders(folder: Path) -> None:
    assert faults_of_examples(folder, load_tasks(folder)) == []


@pytest.mark.parametrize("folder", GRADED, ids=lambda folder: folder.name)
def test_a_skill_has_twelve_tasks_a_quarter_of_them_negative(folder: Path) -> None:
    tasks = load_tasks(folder)
    negative = [task for task in tasks if task.skill != folder.name]
    assert len(tasks) >= 12 and 4 * len(negative) >= len(tasks)
    assert {task.grade.kind for task in tasks} == set(KINDS)
    assert all(task.grade.kind == "none" for task in negative)
    kinds = {task.id.partition("-")[0] for task in tasks}
    assert kinds == {"explicit", "implicit", "contextual", "negative"}


def test_an_answer_belongs_to_a_task() -> None:
    for folder in GRADED:
        ids = {task.id for task in load_tasks(folder)}
        assert {path.name for path in (folder / "evals" / "answers").iterdir()} == ids


def test_those_without_graders_are_named_rightly() -> None:
    without = set()
    for folder in skill_dirs():
        data = json.loads((folder / "evals" / "evals.json").read_text(encoding="utf-8"))
        if not all("grade" in task for task in data["evals"]):
            without.add(folder.name)
    assert without == NOT_YET_GRADED
