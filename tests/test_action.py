"""The GitHub Action: its own steps, run as a runner runs them, and the editor's package."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from megatron_hcp import __version__
from support.processes import HANG_S

ROOT = Path(__file__).resolve().parents[1]
LAUNCH = "torchrun --nproc-per-node 8 pretrain_gpt.py --context-parallel-size 4 --seq-length {length}\n"


def run_steps(repository: Path, temporary: Path, **inputs: str) -> list[subprocess.CompletedProcess[str]]:
    """Runs the steps in order up to the first that fails, with these inputs or their defaults."""
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    values = {name: inputs.get(name, entry["default"]) for name, entry in action["inputs"].items()}
    done: list[subprocess.CompletedProcess[str]] = []
    for step in action["runs"]["steps"]:
        given = {
            name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda match: values[match[1]], text)
            for name, text in step["env"].items()
        }
        assert step["shell"] == "bash" and "${{" not in step["run"], "an input in a script could be a command"
        env = {**os.environ, "RUNNER_TEMP": str(temporary), "GITHUB_ACTION_PATH": str(ROOT), **given}
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done.append(
            subprocess.run(words, cwd=repository, env=env, capture_output=True, text=True, timeout=HANG_S, check=False)
        )
        if done[-1].returncode:
            break
    return done


@pytest.mark.slow
def test_the_action_installs_hcp_and_annotates_what_it_finds(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    (repository / "jobs").mkdir(parents=True)
    (repository / "jobs" / "bad.sh").write_text(LAUNCH.format(length=4097))
    done = run_steps(repository, tmp_path, python=sys.executable)
    assert [step.returncode for step in done] == [0, 1], done[0].stderr[-2000:]
    assert "::error file=jobs/bad.sh,line=1" in done[1].stdout and "checked 1 launch" in done[1].stdout
    (repository / "jobs" / "bad.sh").write_text(LAUNCH.format(length=4096))
    again = run_steps(repository, tmp_path, python=sys.executable, targets="jobs", arguments="--strict --ignore MEM")
    assert again[1].returncode in (0, 1) and "1 error" not in again[1].stdout


def test_the_editors_package_starts_the_server_that_there_is() -> None:
    package = json.loads((ROOT / "editors" / "vscode" / "package.json").read_text(encoding="utf-8"))
    assert package["contributes"]["configuration"]["properties"]["hcp.command"]["default"] == ["hcp", "lsp"]
    assert package["version"] == __version__.partition(".dev")[0]
    (association,) = package["contributes"]["yamlValidation"]
    assert association["fileMatch"] == ".hcp.yaml"
    assert (ROOT / "schemas" / Path(association["url"]).name).is_file()


def test_every_command_has_a_man_page(tmp_path: Path) -> None:
    pytest.importorskip("click_man")
    from release.man import write

    from megatron_hcp.cli.main import COMMANDS

    pages = {path.name: path.read_text(encoding="utf-8") for path in write(tmp_path)}
    assert {f"hcp-{name}.1" for name in COMMANDS} <= pages.keys()
    assert all(text.startswith(".TH ") and ".SH SYNOPSIS" in text for text in pages.values())
