"""`hcp skills new`: a whole skill whose proof fails, and nothing else is touched."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from megatron_hcp.skills.card import load_card
from megatron_hcp.skills.evals.task import KINDS, load_tasks


@pytest.mark.slow
def test_a_new_skill_is_whole_but_for_what_is_to_be_filled_in(hcp, tmp_path: Path) -> None:
    done = hcp("skills", "new", "my-skill-2", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    skill = tmp_path / "my-skill-2"
    done = hcp("skills", "validate", "my-skill-2", "--strict", cwd=tmp_path)
    assert done.returncode == 1 and {"SKILL.md", "config/card.yaml", "evals/evals.json", "scripts/proof.py"} == {
        line.split()[1] for line in done.stdout.splitlines() if "is to be filled in, line" in line
    }
    assert len(done.stdout.splitlines()) == 4, "it lacks something that is no place to fill in"
    tasks = load_tasks(skill)
    assert {task.grade.kind for task in tasks} == set(KINDS)
    assert [task.id.partition("-")[0] for task in tasks] == ["explicit", "implicit", "contextual", "negative"]
    assert hcp("skills", "eval", "my-skill-2", cwd=tmp_path).returncode == 0
    for path in skill.rglob("*"):
        if path.is_file():
            path.write_text(re.sub(r"\[FILL IN[^]\n]*\]", "what is filled in", path.read_text()))
    done = hcp("skills", "validate", "my-skill-2", "--strict", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "my-skill-2: ok\n")
    assert load_card(skill).title == "My skill 2"


@pytest.mark.slow
def test_its_proof_fails_until_it_is_written(hcp, tmp_path: Path) -> None:
    hcp("skills", "new", "mine", "--dir", "skills", cwd=tmp_path)
    done = hcp("verify", "--trust", "skills/mine", cwd=tmp_path)
    assert done.returncode == 1 and "the proof is not written yet" in done.stdout and "1 failed" in done.stdout
    proof = tmp_path / "skills" / "mine" / "scripts" / "proof.py"
    proof.write_text(proof.read_text().replace("return 1", "return 0"))
    assert hcp("verify", "--trust", "skills/mine", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("there", ["folder", "file", "dangling"])
def test_what_is_there_stays_as_it_is(hcp, tmp_path: Path, there: str) -> None:
    place = tmp_path / "mine"
    if there == "folder":
        place.mkdir()
    elif there == "file":
        place.write_text("mine")
    else:
        place.symlink_to(tmp_path / "victim")
    done = hcp("skills", "new", "mine", cwd=tmp_path)
    assert done.returncode == 2 and "mine already exists" in done.stderr and len(done.stderr.splitlines()) == 1
    assert [path.name for path in tmp_path.rglob("*")] == ["mine"]


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "/tmp/x",
        "a/b",
        "",
        ".",
        "..",
        "A",
        "a_b",
        "a-",
        "a--b",
        "a b",
        "a\n",
        "\u202ea",
        "x" * 65,
        "a.b",
        "ä",
    ],
)
def test_a_name_that_no_skill_may_have_is_refused(hcp, tmp_path: Path, name: str) -> None:
    done = hcp("skills", "new", name, cwd=tmp_path)
    assert done.returncode == 2 and "found the name" in done.stderr and len(done.stderr.splitlines()) == 1
    assert done.stderr.rstrip("\n").isprintable() and list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_one_line(hcp, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = hcp("skills", "new", "mine", "--dir", "file/below", cwd=tmp_path)
    assert done.returncode == 2 and "cannot write" in done.stderr and len(done.stderr.splitlines()) == 1
