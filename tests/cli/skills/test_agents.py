"""`hcp skills install --agent`, `update` and `uninstall`: where agents look, and nothing of a person's is lost."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from support.cards import skill_in, step

NAME = "training-resiliency"
OTHER = "slurm-multi-node-launch"


def files_in(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("agent", "folders"),
    [
        ("claude", [".claude/skills"]),
        ("codex", [".agents/skills"]),
        ("cursor", [".agents/skills"]),
        ("gemini", [".agents/skills"]),
        ("copilot", [".agents/skills"]),
        ("all", [".agents/skills", ".claude/skills"]),
    ],
)
def test_each_agent_finds_them_where_it_looks(hcp, tmp_path: Path, agent: str, folders: list[str]) -> None:
    done = hcp("skills", "install", NAME, "--agent", agent, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.parent.parent.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("SKILL.md")) == folders


def test_a_dry_run_says_what_would_be_done_and_does_nothing(hcp, tmp_path: Path) -> None:
    done = hcp("skills", "install", NAME, "--dry-run", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{NAME} -> .agents/skills/{NAME} (would be new)\n")
    assert list(tmp_path.iterdir()) == []
    hcp("skills", "install", NAME, cwd=tmp_path)
    skill = tmp_path / ".agents" / "skills" / NAME / "SKILL.md"
    skill.write_text(skill.read_text() + "my own line\n")
    before = files_in(tmp_path)
    done = hcp("skills", "install", NAME, "--dry-run", cwd=tmp_path)
    assert done.stdout.splitlines()[0] == f"{NAME} -> .agents/skills/{NAME} (would be replaced)"
    assert "+++ yours/SKILL.md" in done.stdout and "+my own line" in done.stdout.splitlines()
    done = hcp("skills", "uninstall", "--dry-run", cwd=tmp_path)
    left = f".agents/skills/{NAME} would be left: you changed SKILL.md; --force moves your files to .hcp-backup\n"
    assert (done.returncode, done.stdout) == (0, left)
    done = hcp("skills", "uninstall", "--dry-run", "--force", cwd=tmp_path)
    assert done.stdout == f".agents/skills/{NAME} would be removed (you changed SKILL.md)\n"
    assert files_in(tmp_path) == before


def test_update_replaces_another_version_and_keeps_edits(hcp, tmp_path: Path, root: Path) -> None:
    done = hcp("skills", "update", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "nothing is installed in that folder; run hcp skills install\n")
    hcp("skills", "install", NAME, cwd=tmp_path)
    place = tmp_path / ".agents" / "skills" / NAME
    record = json.loads((place / "config" / "installed.json").read_text())
    # An older version: a file with other words, and the record that says so.
    (place / "SKILL.md").write_text("older words")
    record["files"]["SKILL.md"] = "9d0e9a6d31a2a6a8d6b6a9b9c3a5b5a6"
    (place / "config" / "installed.json").write_text(json.dumps(record))
    assert hcp("skills", "update", cwd=tmp_path).returncode == 1  # the record does not know these words: an edit
    record["files"]["SKILL.md"] = hashlib.sha256(b"older words").hexdigest()
    (place / "config" / "installed.json").write_text(json.dumps(record))
    assert hcp("skills", "install", NAME, cwd=tmp_path).returncode == 2
    done = hcp("skills", "update", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{NAME} -> .agents/skills/{NAME} (replaced)\n")
    assert (place / "SKILL.md").read_text() == (root / "skills" / NAME / "SKILL.md").read_text()
    assert hcp("skills", "update", cwd=tmp_path).stdout == f"{NAME} -> .agents/skills/{NAME} (up to date)\n"


def test_update_goes_on_with_the_other_skills_where_one_was_edited(hcp, tmp_path: Path) -> None:
    hcp("skills", "install", NAME, OTHER, cwd=tmp_path)
    place = tmp_path / ".agents" / "skills"
    (place / NAME / "SKILL.md").write_text("mine")
    stale(place / OTHER)
    done = hcp("skills", "update", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == (
        f"{OTHER} -> .agents/skills/{OTHER} (replaced)\n"
        f".agents/skills/{NAME} left: you changed SKILL.md; --force moves your files to .hcp-backup\n"
    )
    assert (place / NAME / "SKILL.md").read_text() == "mine" and (place / OTHER / "SKILL.md").read_text() != "older"
    stale(place / OTHER)
    assert hcp("skills", "update", "--force", cwd=tmp_path).returncode == 0


def stale(skill: Path) -> None:
    """Makes an installed skill one of another version: a file with other words, and the record that says so."""
    record = json.loads((skill / "config" / "installed.json").read_text())
    (skill / "SKILL.md").write_text("older")
    record["files"]["SKILL.md"] = hashlib.sha256(b"older").hexdigest()
    (skill / "config" / "installed.json").write_text(json.dumps(record))


def test_uninstall_takes_away_what_hcp_installed_and_nothing_else(hcp, tmp_path: Path) -> None:
    mine = skill_in(tmp_path / ".agents" / "skills" / "mine", step())
    hcp("skills", "install", cwd=tmp_path)
    kept = files_in(mine)
    (tmp_path / ".agents" / "skills" / NAME / "SKILL.md").write_text("my own words")
    done = hcp("skills", "uninstall", cwd=tmp_path)
    left = f".agents/skills/{NAME} left: you changed SKILL.md; --force moves your files to .hcp-backup"
    assert (done.returncode, done.stderr) == (1, "") and left in done.stdout.splitlines()
    assert {path.name for path in (tmp_path / ".agents" / "skills").iterdir()} == {"mine", NAME}
    done = hcp("skills", "uninstall", "--force", cwd=tmp_path)
    assert done.returncode == 0 and f"your files are in .agents/skills/.hcp-backup/{NAME}-1" in done.stdout
    assert {path.name for path in (tmp_path / ".agents" / "skills").iterdir()} == {"mine", ".hcp-backup"}
    assert files_in(mine) == kept
    assert (tmp_path / ".agents/skills/.hcp-backup" / f"{NAME}-1" / "SKILL.md").read_text() == "my own words"
    assert hcp("skills", "uninstall", cwd=tmp_path).returncode == 0


@pytest.mark.sample(3)
@pytest.mark.parametrize("force", [(), ("--force",)])
def test_uninstall_removes_nothing_through_a_link_and_nothing_without_a_record(hcp, tmp_path, force) -> None:
    victim = tmp_path / "victim"
    hcp("skills", "install", NAME, "--dir", victim, cwd=tmp_path)
    before = files_in(victim)
    place = tmp_path / ".agents" / "skills"
    place.mkdir(parents=True)
    (place / NAME).symlink_to(victim / NAME)
    (place / "mine").mkdir()
    (place / "mine" / "SKILL.md").write_text("mine")
    done = hcp("skills", "uninstall", *force, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    for name, said in ((NAME, "is a link"), ("mine", "was not installed by hcp"), ("none", "is not in")):
        done = hcp("skills", "uninstall", name, *force, cwd=tmp_path)
        assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1
    for name in (victim / NAME, f"../../victim/{NAME}", ".", ""):
        done = hcp("skills", "uninstall", str(name), *force, cwd=tmp_path)
        assert done.returncode == 2 and "is not a skill name" in done.stderr and len(done.stderr.splitlines()) == 1
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    assert "is a link" in hcp("skills", "uninstall", *force, cwd=tmp_path).stderr
    assert files_in(victim) == before and (tmp_path / "elsewhere" / "mine" / "SKILL.md").is_file()


def test_each_command_says_in_json_what_it_did(hcp, tmp_path: Path) -> None:
    def done(*words: str) -> list[dict[str, object]]:
        said = json.loads(hcp("skills", *words, "--format", "json", cwd=tmp_path).stdout)
        assert said["schema"] == "hcp.skills-install/1" and said["dry_run"] == ("--dry-run" in words)
        return said["skills"]

    place = f".agents/skills/{NAME}"
    clean: dict[str, object] = {"skill": NAME, "path": place, "backup": None, "changed": [], "difference": []}
    assert done("update") == []
    assert done("install", NAME, "--dry-run") == [{**clean, "status": "new"}]
    assert not (tmp_path / place).exists()
    assert done("install", NAME) == [{**clean, "status": "new"}]
    assert done("update") == [{**clean, "status": "up to date"}]
    (tmp_path / place / "SKILL.md").write_text("mine")
    assert done("update") == [{**clean, "status": "left", "changed": ["SKILL.md"]}]
    assert done("uninstall") == [{**clean, "status": "left", "changed": ["SKILL.md"]}]
    assert done("update", "--dry-run")[0]["status"] == "left"
    (told,) = done("update", "--dry-run", "--force")
    assert (told["status"], told["changed"]) == ("replaced", ["SKILL.md"])
    assert "+mine" in told["difference"]  # type: ignore[operator]
    backup = f".agents/skills/.hcp-backup/{NAME}-1"
    assert done("update", "--force") == [{**clean, "status": "replaced", "backup": backup}]
    assert done("uninstall", "--dry-run") == done("uninstall") == [{**clean, "status": "removed"}]
    assert done("uninstall") == []


def test_the_list_fits_a_terminal(hcp) -> None:
    lines = hcp("skills", "list").stdout.splitlines()
    assert NAME in lines and max(map(len, lines)) <= 80
