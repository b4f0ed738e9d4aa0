"""The tasks by which a skill is tried: whole, about skills that exist, and some of them for another skill or none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.skills.card import skill_dirs
from megatron_hcp.skills.evals.task import load_tasks

NAMES = {folder.name for folder in skill_dirs()}
KINDS = ("explicit-", "implicit-", "contextual-", "negative-")


@pytest.mark.parametrize("folder", skill_dirs(), ids=lambda folder: folder.name)
def test_the_tasks_of_a_skill_are_whole(folder: Path) -> None:
    data = json.loads((folder / "evals" / "evals.json").read_text(encoding="utf-8"))
    assert set(data) == {"skill_name", "evals"} and data["skill_name"] == folder.name
    tasks = data["evals"]
    assert len({task["id"] for task in tasks}) == len(tasks)
    for task in tasks:
        assert {"id", "prompt", "expected_output", "expected_skill"} <= set(task), task["id"]
        assert task["id"].startswith(KINDS) and folder.name not in task["prompt"], task["id"]
        is_negative = task["id"].startswith("negative-")
        assert (task["expected_skill"] == folder.name) != is_negative, task["id"]
        assert task["expected_skill"] in NAMES | {None} and set(task.get("acceptable_skills", [])) <= NAMES, task["id"]
        assert len(task.get("assertions", ["none"])) >= 1, task["id"]
    kinds = [next(kind for kind in KINDS if task["id"].startswith(kind)) for task in tasks]
    assert set(kinds) == set(KINDS) and kinds.count("negative-") >= 2


def test_a_skill_without_tasks_as_in_an_installed_package_says_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "SKILL.md").touch()
    with pytest.raises(HcpError, match=r"has no evals/evals\.json; wanted the tasks of a skill; name .* in a checkout"):
        load_tasks(tmp_path)
