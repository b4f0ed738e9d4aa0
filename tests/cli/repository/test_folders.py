"""Folders as targets of `hcp check`: which files are read, what is printed, and the exit code."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.project import walk
from megatron_hcp.project.walk import files_below

GOOD = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --context-parallel-size 2 --seq-length 4096 "
    "--max-position-embeddings 4096\n"
)
BAD = GOOD.replace("--seq-length 4096", "--seq-length 4097")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    for name, text in {
        "good.sh": GOOD,
        "jobs/bad.sbatch": BAD,
        "build.sh": "make\n",
        "ci.yaml": "jobs: {x: 1}\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_a_folder_is_searched_for_launches_and_summed_up_in_one_line(hcp, repo: Path) -> None:
    done = hcp("check", ".", cwd=repo)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (1, "")
    assert lines[-1] == "checked 2 launches in 2 files: 1 failed, 0 undecided, 1 ok; 2 other files"
    assert any(line.startswith("jobs/bad.sbatch:1:") for line in lines)
    assert not any("good.sh" in line for line in lines)


def test_json_holds_every_launch(hcp, repo: Path) -> None:
    data = json.loads(hcp("check", ".", "--format", "json", cwd=repo).stdout)
    assert data["schema"] == "hcp.check-many/2"
    assert [item["target"]["name"] for item in data["results"]] == ["good.sh", "jobs/bad.sbatch"]


def test_a_file_that_is_named_is_shown_and_must_be_a_launch(hcp, repo: Path) -> None:
    done = hcp("check", "good.sh", "build.sh", "jobs", cwd=repo)
    assert done.returncode == 2 and "good.sh: ok" in done.stdout and "build.sh" in done.stderr


@pytest.mark.parametrize("name", [".hidden", "node_modules", "venv", "left_out"])
def test_what_is_not_the_repositorys_own_is_not_read(hcp, repo: Path, name: str) -> None:
    folder = repo / name
    folder.mkdir()
    (folder / "bad.sh").write_text(BAD)
    if name == "venv":
        (folder / "pyvenv.cfg").write_text("")
    (repo / ".hcp.yaml").write_text("exclude: [left_out]\n")
    assert "checked 2 launches" in hcp("check", ".", cwd=repo).stdout


def test_a_link_is_not_followed(hcp, repo: Path) -> None:
    (repo / "again.sh").symlink_to(repo / "good.sh")
    (repo / "loop").symlink_to(repo, target_is_directory=True)
    assert "checked 2 launches" in hcp("check", ".", cwd=repo).stdout


def test_a_folder_without_a_launch_does_not_pass(hcp, tmp_path: Path) -> None:
    (tmp_path / "build.sh").write_text("make\n")
    done = hcp("check", ".", cwd=tmp_path)
    assert done.returncode == 2 and "found no launch in ." in done.stderr


def test_a_launch_that_cannot_be_read_does_not_pass(hcp, repo: Path) -> None:
    (repo / "broken.sh").write_text(GOOD.replace(" pretrain", " $X pretrain") + "--bf16\n")
    done = hcp("check", ".", cwd=repo)
    assert done.returncode == 2 and "broken.sh" in done.stderr
    assert "1 file could not be used" in done.stdout.splitlines()[-1]


def test_changed_reads_what_differs_from_a_revision_and_new_files(hcp, repo: Path) -> None:
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org")
    subprocess.run([*git, "add", "."], cwd=repo, check=True)
    subprocess.run([*git, "commit", "-qm", "x"], cwd=repo, check=True)
    assert "checked 0 launches" in hcp("check", "--changed", "HEAD", cwd=repo).stdout
    (repo / "good.sh").write_text(GOOD + "# changed\n")
    (repo / "new.sh").write_text(BAD)
    done = hcp("check", "--changed", "HEAD", cwd=repo)
    assert "new.sh:1:" in done.stdout and "checked 2 launches in 2 files: 1 failed, 0 undecided, 1 ok" in done.stdout
    assert done.returncode == 1


@pytest.mark.parametrize("revision", ["nope", "--output=x"])
def test_a_revision_that_git_does_not_know_is_one_line(hcp, repo: Path, revision: str) -> None:
    done = hcp("check", ".", f"--changed={revision}", cwd=repo)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "a revision" in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        '#!/bin/bash\n#SBATCH --nodes=1\nsrun bash -c "$COMMAND"\n',
        "#!/bin/bash\n#SBATCH --nodes=1\nsrun --container-image=x/y:1 $COMMAND\n",
        "torchrun --nproc-per-node 8 $COMMAND\n",
    ],
)
def test_a_script_whose_command_is_set_elsewhere_is_no_other_file(hcp, repo: Path, text: str) -> None:
    (repo / "hidden.sh").write_text(text)
    done = hcp("check", ".", cwd=repo)
    assert done.returncode == 2 and "hidden.sh has no training command, and what line" in done.stderr
    assert "in COMMAND, which the script does not set" in done.stderr
    assert done.stdout.endswith("1 file could not be used; 2 other files\n")
    start = BAD if "torchrun" not in text else BAD.partition("8 ")[2]
    (repo / ".hcp.yaml").write_text(f"facts: {{env.COMMAND: '{start.strip()}'}}\n")
    assert "hidden.sh:" in hcp("check", "hidden.sh", cwd=repo).stdout


@pytest.mark.parametrize(
    "text", ['"$@"\n', "$CMD\n", 'bash -c "$CMD"\n', "srun hostname $NAME\n", "srun -N $N hostname\n"]
)
def test_a_script_that_runs_what_it_is_given_is_another_file(hcp, repo: Path, text: str) -> None:
    (repo / "wrapper.sh").write_text(text)
    assert hcp("check", ".", cwd=repo).stdout.endswith("1 ok; 3 other files\n")


def test_a_tree_of_very_many_folders_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        (tmp_path / str(number) / "a" / "b").mkdir(parents=True)
    (tmp_path / "3" / "run.sh").write_text("")
    assert files_below(str(tmp_path)) == [str(tmp_path / "3" / "run.sh")]
    monkeypatch.setattr(walk, "_MOST_FOLDERS", 12)
    with pytest.raises(HcpError, match="holds more than 12 folders; wanted a folder of launches; name a folder in it"):
        files_below(str(tmp_path))


def test_a_folder_shows_of_a_launch_what_is_acted_on(hcp, tmp_path: Path) -> None:
    launch = "torchrun --nproc-per-node 8 pretrain_gpt.py --context-parallel-size 3 --max-position-embeddings 9 $@\n"
    (tmp_path / "run.sh").write_text(launch)
    alone = hcp("check", "run.sh", cwd=tmp_path).stdout.splitlines()
    found = hcp("check", ".", cwd=tmp_path).stdout.splitlines()
    assert any(": note: " in line for line in alone) and any("TOPO003" in line for line in found)
    assert not any("note: " in line or line.startswith(("not checked", "presumed")) for line in found)
    assert found[-2] == alone[-1]


def test_a_hook_that_names_files_passes_over_what_the_repository_excludes(hcp, repo: Path) -> None:
    (repo / ".hcp.yaml").write_text("exclude: [jobs]\n")
    hook = ("check", "--skip-unrecognised", "--quiet")
    done = hcp(*hook, "good.sh", "jobs/bad.sbatch", "ci.yaml", cwd=repo)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert hcp(*hook, "--isolated", "jobs/bad.sbatch", cwd=repo).returncode == 1
    assert hcp("check", "jobs/bad.sbatch", cwd=repo).returncode == 1, "a person names what to check"
    (repo / ".hcp.yaml").write_text("exclude: [good.sh]\n")
    done = hcp(*hook, "good.sh", "jobs/bad.sbatch", cwd=repo)
    assert done.returncode == 1 and "CP001" in done.stdout
