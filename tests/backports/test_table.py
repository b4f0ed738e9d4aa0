"""The releases that lack a fix, from a history with a fix and a copy of it on a release branch."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from upstream_fixes.judged import JUDGED, READ
from upstream_fixes.table import ranges, section, usual_options

from megatron_hcp.backports.table import fixes_of, upstreams
from megatron_hcp.rules.known.row import spans_of

CODE = "def split(batch, cp_size):\n    rows = len(batch)\n    size = rows // cp_size\n    return batch[:size]\n"
MENDED = CODE.replace("rows // cp_size", "-(-rows // cp_size)")


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false")
    subprocess.run(["git", *who, "-C", str(folder), *words], check=True, capture_output=True)


def commit(folder: Path, subject: str, text: str) -> None:
    file = folder / "slime" / "batch.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-m", subject)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """v0.1.0 has no split; v0.2.0 and v0.2.1 have the fault, v0.2.2 the fix from main, which v0.3.0 has too."""
    git(tmp_path, "init", "-b", "main")
    commit(tmp_path, "start", "import math\n")
    git(tmp_path, "tag", "v0.1.0")
    commit(tmp_path, "split batches (#1)", CODE)
    git(tmp_path, "tag", "v0.2.0")
    git(tmp_path, "tag", "v0.2.1")
    commit(tmp_path, "fix: the last rows of a batch under CP (#12)", MENDED)
    git(tmp_path, "tag", "v0.3.0")
    git(tmp_path, "checkout", "-b", "release", "v0.2.1")
    commit(tmp_path, "cp: `fix: the last rows (12)` into `release`", MENDED)
    git(tmp_path, "tag", "v0.2.2")
    git(tmp_path, "checkout", "main")
    return tmp_path


def test_a_fix_is_lacking_where_the_lines_are_that_it_replaced(history: Path) -> None:
    assert section("slime", history).splitlines()[1:] == [
        "12\t>=0.2.0,<0.2.2\tcp\t\t\tThe last rows of a batch under CP",
    ]


def test_a_commit_that_mends_nothing_or_names_no_topic_is_left_out(history: Path) -> None:
    commit(history, "add a faster split under CP (#13)", CODE)
    commit(history, "fix a batch (#14)", CODE.replace("rows // cp_size", "rows"))
    assert len(section("slime", history).splitlines()) == 2


def test_a_commit_that_a_person_judged_is_a_fix_whatever_its_title_says(history: Path) -> None:
    commit(history, "log-probabilities (#245)", MENDED.replace("rows", "count"))
    assert "245\t>=0.2.2\toptions\t\tuse_tis\tLog-probabilities" in section("slime", history)


def test_the_file_has_the_releases_that_people_read_at_the_tags() -> None:
    rows = {
        (str(package), fix.number): fix.spans for package, upstream in upstreams().items() for fix in fixes_of(upstream)
    }
    assert {key: rows[key] for key in READ} == {key: spans_of(text) for key, text in READ.items()}
    assert READ.keys() <= JUDGED.keys()


def test_ranges_end_at_the_next_release_without_the_fault() -> None:
    releases = ["0.1", "0.2", "0.3", "0.4"]
    assert ranges(["0.2", "0.4"], releases) == ">=0.2,<0.3 | >=0.4"
    assert ranges([], releases) == ""


def test_a_commit_without_a_topic_keeps_the_options_that_its_change_names(history: Path) -> None:
    clipped = MENDED + "def clip(loss, args):\n    return loss\n"
    commit(history, "clip (#15)", clipped)
    git(history, "tag", "v0.4.0")
    mended = clipped.replace("return loss", "return loss.clamp(max=args.eps_clip_c)")
    commit(history, "fix: forward the lower bound of the second kind (#16)", mended)
    assert "16\t>=0.4.0\toptions\t\teps_clip_c\tForward the lower bound of the second kind" in section("slime", history)


def test_an_option_that_most_of_the_projects_launches_turn_on_says_nothing(history: Path) -> None:
    for number in range(4):
        turned_on = "--eps-clip-c 3" if number else "--eps-clip-c 0"
        (history / f"run{number}.sh").write_text(f"train.py --tensor-model-parallel-size 2 {turned_on}\n")
    git(history, "add", "-A")
    git(history, "commit", "-m", "launches")
    assert "eps_clip_c" in usual_options(history)
