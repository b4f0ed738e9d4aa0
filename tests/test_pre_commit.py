"""pre-commit itself runs the hook that users name, and the hooks of contributors."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.processes import HANG_S

pytest.importorskip("pre_commit", reason="pre-commit is not installed: pip install -c constraints.txt -e '.[test]'")

ROOT = Path(__file__).resolve().parents[1]
HOOKS, OWN = ROOT / ".pre-commit-hooks.yaml", ROOT / ".pre-commit-config.yaml"


def pre_commit(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """`pre-commit WORDS` in a folder; what it keeps lies beside that."""
    return subprocess.run(
        [sys.executable, "-m", "pre_commit", *words], cwd=folder, capture_output=True, text=True, timeout=HANG_S,
        env={**os.environ, "PRE_COMMIT_HOME": str(folder.parent / "kept"), "PRE_COMMIT_COLOR": "never", **env},
    )  # fmt: skip


def repository(folder: Path, files: dict[str, str], config: str) -> Path:
    """A repository with these files staged, and this configuration of pre-commit."""
    folder.mkdir()
    for name, text in {**files, OWN.name: config}.items():
        (folder / name).write_text(text, encoding="utf-8")
    for command in (("init", "-q"), ("add", "-A")):
        subprocess.run(["git", *command], cwd=folder, check=True, timeout=HANG_S, capture_output=True)
    return folder


def users_config() -> str:
    """The published hook as one of a user's own: it runs the hcp of these tests, where pre-commit would install one."""
    hook: dict[str, Any] = yaml.safe_load(HOOKS.read_text(encoding="utf-8"))[0]
    hook |= {"language": "system", "entry": f"{sys.executable} -m megatron_{hook['entry']}", "verbose": True}
    return yaml.safe_dump({"repos": [{"repo": "local", "hooks": [hook]}]})


NO_LAUNCH = {
    "service.yaml": "apiVersion: v1\nkind: Service\n",
    "list.yml": "- a\n- b\n",
    "build.sh": "#!/bin/sh\nmake\n",
    "notes.txt": "model.context_parallel_size=3\n",
}


@pytest.mark.slow
def test_what_users_and_contributors_name_is_valid() -> None:
    for command, file in (("validate-manifest", HOOKS), ("validate-config", OWN)):
        done = pre_commit(ROOT, command, str(file))
        assert (done.returncode, done.stdout + done.stderr) == (0, ""), command


def test_the_hook_fails_on_a_broken_launch_and_shows_its_findings(tmp_path: Path) -> None:
    broken = (ROOT / "examples" / "mlm_broken.sh").read_text(encoding="utf-8")
    done = pre_commit(repository(tmp_path / "user", {**NO_LAUNCH, "train.sh": broken}, users_config()), "run", "-a")
    assert done.returncode == 1
    assert "train.sh:38:5: error HCP001" in done.stdout and "exit code: 1" in done.stdout


@pytest.mark.slow
def test_files_that_are_no_launch_cost_the_hook_no_line(tmp_path: Path) -> None:
    done = pre_commit(repository(tmp_path / "user", NO_LAUNCH, users_config()), "run", "-a")
    assert done.returncode == 0, done.stdout
    assert [line for line in done.stdout.splitlines() if line.startswith("hcp: ")] == []


@pytest.mark.slow
def test_contributors_hooks_correct_a_file_and_run_the_commands_of_ci(tmp_path: Path) -> None:
    files = {"a.py": "import os\nx = {  'a':1 }\n", "pyproject.toml": (ROOT / "pyproject.toml").read_text()}
    folder = repository(tmp_path / "clone", files, OWN.read_text(encoding="utf-8"))
    tools = folder / ".venv" / "bin"
    tools.mkdir(parents=True)
    found = shutil.which("ruff", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert found is not None
    (tools / "ruff").symlink_to(found)
    done = pre_commit(folder, "run", "-a")
    assert done.returncode == 1 and "mypy" not in done.stdout, done.stdout
    assert (folder / "a.py").read_text() == 'x = {"a": 1}\n'
    assert pre_commit(folder, "run", "-a").returncode == 0
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for hook in yaml.safe_load(OWN.read_text(encoding="utf-8"))["repos"][0]["hooks"]:
        assert " ".join(hook["entry"].split()[:2]) in ci
