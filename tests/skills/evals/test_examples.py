"""Every task with a grader has answers that prove it: the right one passes, each wrong one fails."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.skills.card import skill_dirs
from megatron_hcp.skills.evals.examples import faults_of_examples
from megatron_hcp.skills.evals.task import ANSWERS_PATH, KINDS, load_answers, load_tasks
from megatron_hcp.skills.scaffold import new_skill

SKILLS = skill_dirs()


@pytest.mark.sample(4)
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
        assert set(load_answers(folder)) == {task.id for task in load_tasks(folder)}


@pytest.mark.slow
def test_answers_that_do_not_prove_their_grader_are_named(tmp_path: Path) -> None:
    folder = new_skill("a-skill", tmp_path)
    tasks = load_tasks(folder)
    assert faults_of_examples(folder, tasks) == []
    file = folder / ANSWERS_PATH
    given = yaml.safe_load(file.read_text())
    right = given["explicit-command"]["right"]
    del given["implicit-symptom"], given["negative-neighbour"]["right"]
    given["explicit-command"] = {"right": "x", "wrong": ["x", right]}
    file.write_text(yaml.safe_dump(given))
    assert faults_of_examples(folder, tasks) == [
        "explicit-command: the right answer fails: gives no command that begins with hcp check",
        "explicit-command: wrong answer 2 passes",
        "implicit-symptom: found no right answer; wanted one that passes",
        "implicit-symptom: found 0 wrong answers; wanted at least 2",
        "negative-neighbour: found no right answer; wanted one that passes",
    ]
    file.unlink()
    with pytest.raises(HcpError, match="a-skill has no example answers here; wanted a checkout"):
        faults_of_examples(folder, tasks)
