"""`hcp skills install` writes through no link, over nobody's edits, and whole skills or nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.cards import skill_in, step

NAME = "training-resiliency"


def tree(folder: Path) -> dict[str, str]:
    """Every file below a folder, also hidden ones, with its text."""
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def shipped(root: Path) -> dict[str, str]:
    return tree(root / "skills" / NAME)


def without_record(files: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in files.items() if name != "config/installed.json"}


def test_an_installed_skill_is_a_copy_and_a_second_run_changes_nothing(hcp, tmp_path: Path, root: Path) -> None:
    done = hcp("skills", "install", NAME, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{NAME} -> .agents/skills/{NAME}\n"), done.stderr
    before = tree(tmp_path)
    assert without_record(tree(tmp_path / ".agents" / "skills" / NAME)) == shipped(root)
    done = hcp("skills", "install", NAME, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{NAME} -> .agents/skills/{NAME} (up to date)\n")
    assert tree(tmp_path) == before
    assert hcp("skills", "validate", f".agents/skills/{NAME}", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("link", [f".agents/skills/{NAME}", ".agents/skills", ".agents"])
@pytest.mark.parametrize("force", [(), ("--force",)])
def test_nothing_is_written_through_a_link(hcp, tmp_path: Path, link: str, force: tuple[str, ...]) -> None:
    victim = tmp_path / "victim"
    (victim / "skills" / NAME).mkdir(parents=True)
    (victim / "SKILL.md").write_text("mine")
    (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / link).symlink_to(victim)
    done = hcp("skills", "install", NAME, *force, cwd=tmp_path)
    assert done.returncode == 2 and f"{link} is a link" in done.stderr and len(done.stderr.splitlines()) == 1
    assert tree(victim) == {"SKILL.md": "mine"}


def test_the_folder_that_is_named_may_be_a_link(hcp, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert hcp("skills", "install", NAME, "--dir", "link", cwd=tmp_path).returncode == 0
    assert (tmp_path / "real" / NAME / "SKILL.md").is_file()


def test_nothing_is_kept_through_a_link_to_a_folder_of_backups(hcp, tmp_path: Path) -> None:
    hcp("skills", "install", NAME, cwd=tmp_path)
    place = tmp_path / ".agents" / "skills"
    (place / NAME / "SKILL.md").write_text("my own words")
    (tmp_path / "victim").mkdir()
    (place / ".hcp-backup").symlink_to(tmp_path / "victim")
    done = hcp("skills", "install", NAME, "--force", cwd=tmp_path)
    assert done.returncode == 2 and ".hcp-backup is a link" in done.stderr and len(done.stderr.splitlines()) == 1
    assert tree(tmp_path / "victim") == {} and (place / NAME / "SKILL.md").read_text() == "my own words"


@pytest.mark.sample(3)
@pytest.mark.parametrize("inside", ["SKILL.md", "references", "config"])
def test_a_link_inside_the_old_copy_is_replaced_and_not_followed(hcp, tmp_path: Path, inside: str, root: Path) -> None:
    hcp("skills", "install", NAME, cwd=tmp_path)
    place = tmp_path / ".agents" / "skills" / NAME
    (place / inside).rename(tmp_path / "victim")
    (place / inside).symlink_to(tmp_path / "victim")
    before = tree(tmp_path / "victim") if (tmp_path / "victim").is_dir() else (tmp_path / "victim").read_text()
    assert hcp("skills", "install", NAME, cwd=tmp_path).returncode == 2
    done = hcp("skills", "install", NAME, "--force", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert without_record(tree(place)) == shipped(root) and not (place / inside).is_symlink()
    after = tree(tmp_path / "victim") if (tmp_path / "victim").is_dir() else (tmp_path / "victim").read_text()
    assert after == before


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", ["changed", "added", "deleted"])
def test_what_a_person_changed_is_kept(hcp, tmp_path: Path, kind: str, root: Path) -> None:
    hcp("skills", "install", NAME, cwd=tmp_path)
    place = tmp_path / ".agents" / "skills"
    name = {"changed": "SKILL.md", "added": "references/mine.md", "deleted": "evals/evals.json"}[kind]
    if kind == "deleted":
        (place / NAME / name).unlink()
    else:
        (place / NAME / name).write_text("my own words")
    before = tree(place)
    done = hcp("skills", "install", NAME, cwd=tmp_path)
    assert done.returncode == 2 and f"found changed files in {NAME} ({name})" in done.stderr
    assert tree(place) == before
    done = hcp("skills", "install", NAME, "--force", cwd=tmp_path)
    assert done.returncode == 0
    assert f"(replaced); your files are in .agents/skills/.hcp-backup/{NAME}-1" in done.stdout
    assert tree(place / ".hcp-backup" / f"{NAME}-1") == tree_below(before, NAME)
    assert without_record(tree(place / NAME)) == shipped(root)
    (place / NAME / "SKILL.md").write_text("again")
    assert f"{NAME}-2" in hcp("skills", "install", NAME, "--force", cwd=tmp_path).stdout


def tree_below(files: dict[str, str], folder: str) -> dict[str, str]:
    return {name.partition("/")[2]: text for name, text in files.items() if name.partition("/")[0] == folder}


def test_another_version_without_edits_is_replaced_when_asked_and_not_kept(hcp, tmp_path: Path) -> None:
    first = skill_in(tmp_path / "1", step())
    second = skill_in(tmp_path / "2", step(), title="Another")
    (first / "references").mkdir()
    (first / "references" / "old.md").write_text("only in the first")
    hcp("skills", "install", first, cwd=tmp_path)
    done = hcp("skills", "install", second, cwd=tmp_path)
    assert done.returncode == 2 and "found other versions of a-skill in .agents/skills" in done.stderr
    done = hcp("skills", "install", second, "--force", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "a-skill -> .agents/skills/a-skill (replaced)\n")
    assert without_record(tree(tmp_path / ".agents" / "skills" / "a-skill")) == tree(second)
    assert os.listdir(tmp_path / ".agents" / "skills") == ["a-skill"]


def test_half_a_skill_of_an_older_hcp_is_made_whole(hcp, tmp_path: Path, root: Path) -> None:
    place = tmp_path / ".agents" / "skills" / NAME
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text((root / "skills" / NAME / "SKILL.md").read_text())
    done = hcp("skills", "install", NAME, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{NAME} -> .agents/skills/{NAME} (repaired)\n")
    assert without_record(tree(place)) == shipped(root)


STOPPED = """
import os, signal, sys
import megatron_hcp.skills.install as install
from megatron_hcp.cli.main import main
write, count, name = install._write, 0, sys.argv.pop(1)
def stop(path, file):
    global count
    count += 1
    write(path, file)
    if count == 3:
        os.kill(os.getpid(), getattr(signal, name))
install._write = stop
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGKILL"])
@pytest.mark.parametrize("before", ["nothing", "another version"])
def test_an_interrupted_install_leaves_the_old_state_and_the_next_run_is_as_the_first(
    hcp, tmp_path: Path, name: str, before: str
) -> None:
    first, second = skill_in(tmp_path / "1", step()), skill_in(tmp_path / "2", step(), title="Another")
    place = tmp_path / ".agents" / "skills"
    if before != "nothing":
        hcp("skills", "install", first, cwd=tmp_path)
    old = tree(place) if place.exists() else {}
    command = [sys.executable, "-c", STOPPED, name, "skills", "install", str(second), "--force"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    number = getattr(signal, name)
    assert done.returncode == (-9 if name == "SIGKILL" else 128 + number), done.stderr
    assert (done.stdout, done.stderr) == ("", "")
    assert {path: text for path, text in tree(place).items() if not path.startswith(".a-skill.hcp-")} == old
    assert name == "SIGKILL" or tree(place) == old
    done = hcp("skills", "install", second, "--force", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert os.listdir(place) == ["a-skill"]
    assert without_record(tree(place / "a-skill")) == tree(second)


@pytest.mark.parametrize("kind", ["loop", "passwd", "zero", "pipe", "folder"])
def test_a_skill_with_links_or_devices_is_not_installed(hcp, tmp_path: Path, kind: str) -> None:
    skill = skill_in(tmp_path, step())
    (skill / "references").mkdir()
    if kind == "pipe":
        os.mkfifo(skill / "references" / "x.md")
    else:
        to = {"loop": ".", "passwd": "/etc/passwd", "zero": "/dev/zero", "folder": "/usr"}[kind]
        (skill / "references" / "x.md").symlink_to(to)
    done = hcp("skills", "install", skill, cwd=tmp_path)
    assert done.returncode == 2 and "references/x.md" in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / ".agents").exists()


def test_a_folder_that_cannot_be_used_is_one_line(hcp, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "there" / NAME).parent.mkdir()
    (tmp_path / "there" / NAME).write_text("a file of that name")
    for place, said in (
        ("file", "cannot copy to file"),
        ("/proc/none", "cannot copy to"),
        ("there", "is not a folder"),
    ):
        done = hcp("skills", "install", NAME, "--to", place, cwd=tmp_path)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
        assert said in done.stderr


@pytest.mark.slow
def test_two_that_install_at_once_leave_one_whole_copy(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "megatron_hcp", "skills", "install", "--to", "here"]
    both = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    assert [(process.communicate()[1], process.returncode) for process in both] == [(b"", 0)] * 3
    for skill in (tmp_path / "here").iterdir():
        record = json.loads((skill / "config" / "installed.json").read_text())
        assert record["files"].keys() == without_record(tree(skill)).keys()
