"""What contributors read is right: the steps name what exists, the workflow calls CI's parts, the form asks enough."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from support.processes import HANG_S
from support.rows import rows

ROOT = Path(__file__).resolve().parents[1]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def _yaml(name: str) -> Any:
    return yaml.safe_load((ROOT / ".github" / name).read_text(encoding="utf-8"))


@rows("place", sorted(set(re.findall(r"(?<![\w/.-])(?:src|tests|lab|skills|docs|examples)/[\w./*-]+", GUIDE))))
def test_a_place_that_the_guide_names_exists(place: str) -> None:
    assert list(ROOT.glob(place.rstrip("."))), place


def test_the_guide_has_five_steps_and_sets_up_as_the_readme_does() -> None:
    steps = GUIDE.partition("## Add a rule in five steps")[2].partition("\n## ")[0]
    assert re.findall(r"(?m)^(\d)\. \*\*", steps) == list("12345")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"<!-- ci: test -->\n```bash\n(.*?)\n[^\n]*pytest", readme)
    assert f"\n{command}\n" in GUIDE


def test_an_unknown_part_of_ci_is_refused_before_anything_starts() -> None:
    done = subprocess.run([ROOT / ".ci" / "run", "lint", "x"], capture_output=True, text=True, timeout=HANG_S)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "ci: found the part x; wanted packages, upstream, lint, tests or pythons\n"
    done = subprocess.run([ROOT / ".ci" / "other_pythons", "9.9"], capture_output=True, text=True, timeout=HANG_S)
    assert (done.returncode, done.stderr) == (2, "ci: found no Python 9.9; wanted one, as it is named\n")


def test_the_workflow_calls_every_part_on_every_python() -> None:
    job = _yaml("workflows/ci.yml")["jobs"]["check"]
    rows = {row["python"]: row["run"].split() for row in job["strategy"]["matrix"]["include"]}
    assert job["steps"][-1]["run"] == "${{ matrix.run }}"
    (parts,) = re.findall(r"\|\| parts=\((.*)\)", CI)
    (others,) = re.findall(r"others=\((.*)\)", (ROOT / ".ci" / "other_pythons").read_text(encoding="utf-8"))
    assert rows.pop("3.11") == [".ci/run", *parts.removesuffix(" pythons").split()]
    assert rows == {version: [".ci/other_pythons", version] for version in others.split()}


def test_the_workflow_can_read_alone_and_runs_no_action_by_a_name_that_may_move() -> None:
    flow = _yaml("workflows/ci.yml")
    assert flow["permissions"] == {"contents": "read"}
    used = [step["uses"] for job in flow["jobs"].values() for step in job["steps"] if "uses" in step]
    assert used and all(re.search(r"@[0-9a-f]{40}$", name) for name in used)


def test_the_issue_form_asks_for_the_launch_what_was_read_and_the_version() -> None:
    fields = {field["id"]: field["validations"]["required"] for field in _yaml("ISSUE_TEMPLATE/launch.yml")["body"]}
    assert {"launch", "show", "version"} <= {name for name, required in fields.items() if required}
