"""The commands that Markdown pages show, and how tests run them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click

from megatron_hcp.cli.main import cli
from support.processes import HANG_S
from support.small_upstream import small_upstream

ROOT = Path(__file__).resolve().parents[2]
STAND_INS = {
    "train.sbatch": ROOT / "examples" / "mlm_hcp.sbatch",
    "launch.sh": ROOT / "examples" / "mlm_hcp.sbatch",
    "config.json": ROOT / "examples" / "llama3_8b_config.json",
    "lengths.txt": ROOT / "examples" / "lengths.txt",
    **{f"examples/{path.name}": path for path in (ROOT / "examples").iterdir()},
    "logs/job-4711.log": ROOT / "tests" / "triage" / "dead_job.log",
    "cache/models--Qwen--Qwen3-8B/snapshots/a/config.json": ROOT / "examples" / "llama3_8b_config.json",
}
"""What stands for the files that pages name."""
TEXTS = {
    "cache/models--Qwen--Qwen3-8B/refs/main": "a",
    "site.yaml": re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "jobs.md").read_text(encoding="utf-8"), re.S)[0],
}
SHORTER = {
    "hcp verify --level cpu": " --list",
    "hcp verify --executor slurm --jobs 8 --submit-with partition=batch --submit-with time=30": " --list",
    "hcp verify --launch train.sbatch": " --spec-out spec.json",
}
"""Commands that take minutes, and the option with which they say what they would do."""
HERE = ("--upstream installed", "--upstream src/Megatron-LM")
"""What is installed differs from machine to machine: a small tree stands for it."""


def lines_of(markdown: str) -> list[str]:
    """The lines of the bash blocks that start hcp, without their comments."""
    blocks = re.findall(r"```bash\n(.*?)```", markdown, re.S)
    lines = [line.partition(" #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("hcp ")]


def run_lines(folder: Path, lines: list[str]) -> None:
    """Runs the lines in a folder, in their order: 0 ok, 1 a finding, 4 undecided, and no message of misuse."""
    for name, source in STAND_INS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, folder / name)
    for name, text in TEXTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "CHECKOUT").mkdir()
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org")
    for made in ("init -q", "commit -qm x --allow-empty", "update-ref refs/remotes/origin/main HEAD"):
        subprocess.run([*git, *made.split()], cwd=folder, check=True, timeout=HANG_S)
    small_upstream(folder / "src" / "Megatron-LM")
    program = folder / "bin" / "hcp"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m megatron_hcp "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "HOME": str(folder), "HF_HUB_CACHE": str(folder / "cache")}
    for line in lines:
        words = line.replace(*HERE) + SHORTER.get(line, "")
        done = subprocess.run(words, shell=True, cwd=folder, env=env, capture_output=True, text=True, timeout=HANG_S)
        assert done.returncode in (0, 1, 4), (line, done.stderr)


def spans_of(markdown: str) -> list[str]:
    """The code spans of the text that are commands of hcp."""
    return sorted(set(re.findall(r"`(?:\.venv/bin/)?(hcp [^`]+)`", markdown)))


def strange_options(span: str) -> list[str]:
    """The options of a command in the text that the command does not have.

    Raises:
        AssertionError: there is no such command.
    """
    context = click.Context(cli, info_name="hcp")
    command: click.Command = cli
    words = re.sub(r"\s*\|.*|[()$\"].*", "", span).split()[1:]
    while words and isinstance(command, click.Group):
        name = words.pop(0)
        if name in ("--version", "--help"):
            return []
        found = command.get_command(context, name)
        assert found is not None, (span, name)
        command = found
    options = {option for param in command.params for option in param.opts} | {"--help", "-h"}
    named = [word.partition("=")[0] if word.startswith("--") else word for word in words]
    return [word for word in named if word.startswith("-") and word != "--" and word not in options]
