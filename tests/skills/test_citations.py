"""Lines and files that a skill without a card cites: right, moved, drifted or gone, and by which name they last."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SOURCE = """import os


class Config:
    def validate(self):
        if self.size:
            check(self.size)
        return True


def other():
    return os.sep
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "up" / "src").mkdir(parents=True)
    (tmp_path / "up" / "src" / "config.py").write_text(SOURCE)
    return tmp_path / "up"


def skill_that_says(folder: Path, text: str) -> Path:
    skill = folder / "skills" / "someones"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(f"---\nname: someones\ndescription: x\n---\n# Someone's\n\n{text}\n")
    return skill


def fence(first: int, last: int, path: str, *lines: str) -> str:
    return "\n".join((f"```{first}:{last}:{path}", *lines, "```"))


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("text", "status", "anchor"),
    [
        (fence(6, 7, "src/config.py", "if self.size:", "check(self.size)"), "right", "Config.validate"),
        (fence(1, 2, "src/config.py", "if self.size:", "check(self.size)"), "moved", "Config.validate"),
        (fence(6, 8, "src/config.py", "if self.size:", "# ...", "return True"), "right", "Config.validate"),
        (fence(6, 7, "src/config.py", "if self.size:", "check(self.length)"), "drifted", "Config.validate"),
        (fence(6, 7, "src/config.py", "if self.length:"), "gone", ""),
        (fence(10, 11, "3rdparty/up/src/config.py", "def other():"), "moved", "other"),
        (fence(1, 1, "src/none.py", "import os"), "gone", ""),
        (fence(1, 1, "lib/none.py", "import os"), "unverified here", ""),
        (fence(1, 1, "../up/src/config.py", "import os"), "unverified here", ""),
        ("`src/config.py`", "right", ""),
        ("`src/config.py:12`", "right", ""),
        ("`src/config.py:12-99`", "drifted", ""),
        ("`src/none.py`", "gone", ""),
    ],
)
def test_what_is_cited_is_looked_for(hcp, tmp_path: Path, checkout: Path, text: str, status: str, anchor: str) -> None:
    skill_that_says(tmp_path, text)
    done = hcp("anchors", tmp_path / "skills", "--repo", f"up={checkout}", "--format", "json")
    (row,) = json.loads(done.stdout)["citations"]
    assert (row["status"], row["skill"], row["line"]) == (status, "someones", 7), row
    assert row["anchor"] == (f"src/config.py::{anchor}" if anchor else "")
    assert done.returncode == (status not in ("right", "unverified here"))


@pytest.mark.torch  # megatron-core is installed: without any sources at all, hcp anchors ends with 2
def test_without_a_checkout_nothing_is_verified(hcp, tmp_path: Path) -> None:
    skill = skill_that_says(tmp_path, "`src/config.py`")
    done = hcp("anchors", skill)
    assert (done.returncode, done.stdout) == (0, "citations in 1 skills without a card: 1 unverified here\n")


def test_a_link_in_the_checkout_is_not_followed(hcp, tmp_path: Path, checkout: Path) -> None:
    (checkout / "src" / "link.py").symlink_to("/etc/passwd")
    skill = skill_that_says(tmp_path, fence(1, 1, "src/link.py", "root:x:0:0:root:/root:/bin/bash"))
    done = hcp("anchors", skill, "--repo", f"up={checkout}", "--format", "json")
    assert json.loads(done.stdout)["citations"][0]["status"] == "gone" and "root:x" not in done.stdout
