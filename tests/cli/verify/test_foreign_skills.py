"""`hcp verify DIR`: a skill of others runs its own scripts, and only with --trust."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from megatron_hcp.skills.card import load_card
from megatron_hcp.skills.skill import judged_skill
from megatron_hcp.skills.stack import stack_notes
from support.cards import skill_in, step


def with_script(folder: Path, text: str) -> Path:
    """A skill whose step runs its own scripts/proof.py with a file of its assets."""
    skill = skill_in(folder, step(run=["python", "scripts/proof.py", "assets/data.txt"]))
    for name, content in (("scripts/proof.py", text), ("assets/data.txt", "from the assets")):
        (skill / name).parent.mkdir()
        (skill / name).write_text(content)
    return skill


@pytest.mark.slow
def test_a_skill_runs_its_own_scripts_wherever_hcp_is_started(hcp, tmp_path: Path) -> None:
    skill = with_script(tmp_path, "import sys; print(open(sys.argv[1]).read())")
    (tmp_path / "elsewhere").mkdir()
    for name in (skill, tmp_path, f"{skill}:s1"):
        done = hcp("verify", "--trust", name, cwd=tmp_path / "elsewhere")
        assert done.returncode == 0 and "passed" in done.stdout and "from the assets" in done.stdout, done.stderr


def test_without_trust_nothing_runs_and_what_would_run_is_said(hcp, tmp_path: Path) -> None:
    skill = with_script(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')")
    done = hcp("verify", skill)
    assert done.returncode == 2 and "add --trust" in done.stderr and len(done.stderr.splitlines()) == 1
    assert "a-skill:s1  static  python scripts/proof.py assets/data.txt" in done.stdout
    told = json.loads(hcp("verify", skill, "--format", "json").stdout)
    assert told["schema"] == "hcp.error/1"
    assert not (tmp_path / "ran").exists()
    assert hcp("verify", skill, "--trust").returncode == 0 and (tmp_path / "ran").exists()


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("scripts/gone.py", "scripts/gone.py"),
        ("scripts/../../outside.py", "found no file"),
        ("scripts/link.py", "leads elsewhere"),
        ("scripts/pipe.py", "not a regular file"),
        ("scripts/" + "x" * 5000, "a-skill"),
    ],
)
def test_only_regular_files_of_the_skill_itself_are_run(hcp, tmp_path: Path, word: str, said: str) -> None:
    (tmp_path / "outside.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    skill = skill_in(tmp_path, step(run=["python", word]))
    (skill / "scripts").mkdir()
    (skill / "scripts" / "link.py").symlink_to(tmp_path / "outside.py")
    os.mkfifo(skill / "scripts" / "pipe.py")
    done = hcp("verify", "--trust", skill)
    assert done.returncode == 1 and said in done.stdout and "1 failed" in done.stdout, done.stdout
    assert not (tmp_path / "ran").exists()
    assert judged_skill(skill).faults != []


def test_a_skill_without_a_card_is_told_what_it_lacks(hcp, tmp_path: Path) -> None:
    skill = skill_in(tmp_path)
    (skill / "config" / "card.yaml").unlink()
    for name in (skill, tmp_path):
        done = hcp("verify", "--trust", name)
        assert done.returncode == 2 and "found no config/card.yaml in a-skill" in done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_an_installed_package_outside_of_the_stack_is_noted(hcp, tmp_path: Path) -> None:
    stack = {"megatron-core": ">=0.13,<0.20", "transformer-engine": ">=2.8", "slurm": ">=22.05"}
    card = load_card(skill_in(tmp_path, stack=stack))
    assert stack_notes(card, {"mcore": "0.16.1", "te": "2.8.0", "torch": "2.13"}) == []
    assert stack_notes(card, {"mcore": "0.19.0rc0"}) == []
    assert stack_notes(card, {"mcore": "0.20.0", "te": "2.7"}) == [
        "a-skill was written for megatron-core >=0.13,<0.20; 0.20.0 is installed",
        "a-skill was written for transformer-engine >=2.8; 2.7 is installed",
    ]
    assert stack_notes(card, {}) == []
    site = tmp_path / "site" / "verl-0.5.dist-info"
    site.mkdir(parents=True)
    (site / "METADATA").write_text("Metadata-Version: 2.1\nName: verl\nVersion: 0.5\n")
    skill = skill_in(tmp_path / "2", step(), stack={"verl": ">=0.8"})
    env = {"PYTHONPATH": os.pathsep.join([str(site.parent), os.environ["PYTHONPATH"]])}
    done = hcp("verify", "--trust", skill, "--format", "json", env=env)
    note = "a-skill was written for verl >=0.8; 0.5 is installed"
    assert (json.loads(done.stdout)["notes"], done.stderr, done.returncode) == ([note], f"note: {note}\n", 0)


@pytest.mark.parametrize("versions", [">=x", ">=1.0.*", 1.0, "==1.*.2"])
def test_a_range_that_is_none_is_a_fault_of_the_card(tmp_path: Path, versions: object) -> None:
    (fault,) = judged_skill(skill_in(tmp_path, stack={"torch": versions})).faults
    assert fault.startswith("card's stack.torch: found")
