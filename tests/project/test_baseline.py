"""Accepted findings: by `.hcp.yaml` with a reason, and by the baseline that `--write-baseline` makes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

FAULTY = "torchrun pretrain_gpt.py --context-parallel-size 4 --seq-length {length} --cp-comm-type a2a+p2p\n"


@pytest.fixture
def hcp(hcp):
    """With one release, which the start-up is judged by: without, each fix is tried on all that there are."""
    return lambda *words, **options: hcp(*words, "--assume", "mcore=0.17.0", **options)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "run.sh").write_text(FAULTY.format(length=4097))
    return tmp_path


def found(hcp, repo: Path, *words: str) -> tuple[list[str], int, str]:
    done = hcp("check", "run.sh", "--format", "json", *words, cwd=repo)
    return [item["rule"] for item in json.loads(done.stdout)["findings"]], done.returncode, done.stderr


def test_a_baseline_accepts_what_is_found_now_and_nothing_else(hcp, repo: Path) -> None:
    before, code, _ = found(hcp, repo)
    assert code == 1 and {"CP001", "HCP001"} <= set(before)
    _, code, said = found(hcp, repo, "--write-baseline")
    assert code == 0 and f"{len(before)} accepted" in said
    (repo / "run.sh").write_text("# a line more\n" + FAULTY.format(length=4097))
    assert found(hcp, repo)[:2] == ([], 0)
    (repo / "run.sh").write_text(FAULTY.format(length=4099))
    assert found(hcp, repo)[:2] == (["CP001"], 1)


def test_errors_that_a_baseline_accepts_are_counted_as_such_and_in_the_folders_last_line(hcp, repo: Path) -> None:
    done = hcp("check", "run.sh", "--format", "json", cwd=repo)
    levels = [item["severity"] for item in json.loads(done.stdout)["findings"]]
    said = found(hcp, repo, "--write-baseline")[2]
    assert (
        f"{len(levels)} accepted ({levels.count('error')} errors, " in said and f"{len(levels)} entries in all" in said
    )
    for _ in range(2):  # the second answer is hcp's cache's
        last = hcp("check", ".", cwd=repo).stdout.splitlines()[-1]
        assert last == f"checked 1 launch in 1 file: 0 failed, 0 undecided, 1 ok; {len(levels)} accepted findings"


def test_entries_that_accept_nothing_any_more_are_listed_and_dropped(hcp, repo: Path) -> None:
    found(hcp, repo, "--write-baseline")
    (repo / "run.sh").write_text(FAULTY.format(length=4096))
    assert "run.sh: CP001 is no longer found" in found(hcp, repo)[2]
    found(hcp, repo, "--write-baseline")
    assert "no longer found" not in found(hcp, repo)[2]


def test_a_baseline_keeps_the_entries_of_launches_that_were_not_checked(hcp, repo: Path) -> None:
    (repo / "other.sh").write_text(FAULTY.format(length=4097))
    hcp("check", "other.sh", "--write-baseline", cwd=repo)
    found(hcp, repo, "--write-baseline")
    data = json.loads((repo / ".hcp-baseline.json").read_text())
    assert {item["path"] for item in data["findings"]} == {"run.sh", "other.sh"}


def test_a_baseline_that_is_a_link_out_of_the_repository_is_neither_read_nor_written(hcp, repo: Path) -> None:
    outside = repo.parent / f"{repo.name}-outside.json"
    outside.write_text("theirs")
    (repo / ".hcp-baseline.json").symlink_to(outside)
    for words in ((), ("--write-baseline",)):
        done = hcp("check", "run.sh", *words, cwd=repo)
        assert done.returncode == 2 and ".hcp-baseline.json leads elsewhere" in done.stderr, done
    assert outside.read_text() == "theirs"


def test_isolated_ignores_baseline_and_file(hcp, repo: Path) -> None:
    found(hcp, repo, "--write-baseline")
    (repo / ".hcp.yaml").write_text("accept: [{rule: CP001, reason: tried}]\n")
    assert "CP001" in found(hcp, repo, "--isolated")[0]


def test_the_file_accepts_a_finding_for_its_paths(hcp, repo: Path) -> None:
    (repo / ".hcp.yaml").write_text("accept: [{rule: CP001, reason: tried, paths: [run.sh]}]\nignore: [HCP001]\n")
    assert "CP001" not in found(hcp, repo)[0] and "HCP001" not in found(hcp, repo)[0]
    (repo / ".hcp.yaml").write_text("accept: [{rule: CP001, reason: tried, paths: [jobs]}]\n")
    assert "CP001" in found(hcp, repo)[0]


def test_a_secret_is_not_written(hcp, repo: Path) -> None:
    secret = "hf_" + "a1B2" * 8
    (repo / "run.sh").write_text(FAULTY.format(length=4097).replace("a2a+p2p", secret))
    found(hcp, repo, "--write-baseline")
    assert secret not in (repo / ".hcp-baseline.json").read_text()


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"schema": "hcp.baseline/2", "findings": []}', '{"findings": [{"path": 1}]}']
)
def test_a_baseline_of_another_shape_is_refused_in_one_line(hcp, repo: Path, text: str) -> None:
    (repo / ".hcp-baseline.json").write_text(text)
    done = hcp("check", "run.sh", cwd=repo)
    assert done.returncode == 2 and done.stderr.startswith("hcp: .hcp-baseline.json") and done.stderr.count("\n") == 1


def test_outside_of_a_repository_no_baseline_is_written(hcp, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(FAULTY.format(length=4097))
    done = hcp("check", "run.sh", "--write-baseline", cwd=tmp_path)
    assert done.returncode == 2 and "no launch in a repository" in done.stderr
    assert not (tmp_path / ".hcp-baseline.json").exists()


def test_a_comment_that_accepts_nothing_is_never_accepted(hcp, repo: Path) -> None:
    """It is to be removed, and would come back when the rule that it names reports something else."""
    (repo / "run.sh").write_text(FAULTY.format(length=4096).rstrip() + "  # hcp: ignore=CP001 x\n")
    hcp("check", "run.sh", "--write-baseline", cwd=repo)
    assert "ACCEPT001" not in (repo / ".hcp-baseline.json").read_text()
    assert "ACCEPT001" in hcp("check", "run.sh", cwd=repo).stdout
