"""Hostile input to the command itself: one clear line and exit 2, and no credential in any output."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.hcp_process import run_hcp

LAUNCH = "torchrun --nproc-per-node 4 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 8"
DIGITS = "9" * 5000
LONG_NAME = "9" * 300
"""More than a file system allows: asking for such a file is an error, not a no."""
PLAN = ("dcp", "plan", "--world-size", "8", "--max-seqlen", "64", "--lengths", "-")


def hcp(*arguments: str, stdin: str | Path = "", cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    if isinstance(stdin, Path):
        command = [sys.executable, "-m", "megatron_hcp", *arguments]
        with stdin.open("rb") as file:
            return subprocess.run(command, stdin=file, capture_output=True, text=True, cwd=cwd)
    return run_hcp(*arguments, stdin=stdin, cwd=cwd)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "-"),
        ("check", "/dev/zero"),
        ("check", "a.sh", "--facts", "/dev/zero"),
        ("check", "a.sh", "--model", "/dev/zero"),
        (*PLAN[:-1], "/dev/zero"),
        PLAN,
    ],
)
def test_input_without_end_is_refused_with_the_limit(arguments: Sequence[str], tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(LAUNCH)
    done = hcp(*arguments, stdin=Path("/dev/zero"), cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert ",000,000 bytes" in done.stderr


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        (("check", "a.sh", "--assume", f"te={DIGITS}"), ""),
        (("check", "a.sh", "--assume", f"mcore=0.{DIGITS}"), ""),
        (("check", "a.sh", "--assume", "checkpoint_s=1e999"), ""),
        (("check", "te=" + "9" * 300), ""),
        (("render", "--start", "verify", LONG_NAME), ""),
        (("triage", LONG_NAME), ""),
        (("anchors", "--sources", LONG_NAME), ""),
        (("anchors", "--repo", f"verl={LONG_NAME}"), ""),
        (("groups", "--world-size", "8", "--cp", "8", "--hcp", DIGITS), ""),
        (PLAN, "[" * 100_000),
        (PLAN, f"[{DIGITS}]"),
        (PLAN, '{"a":' * 100_000),
    ],
)
def test_what_is_too_long_or_too_deep_is_one_clear_line(arguments: Sequence[str], stdin: str, tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(LAUNCH)
    done = hcp(*arguments, stdin=stdin, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and len(done.stderr) < 400 and "wanted" in done.stderr


def test_long_numbers_in_a_launch_are_no_fault_of_ours(tmp_path: Path) -> None:
    header = f"#SBATCH --signal=B:USR1@{DIGITS}\n#SBATCH --nodes={DIGITS}\n"
    options = f"--ft-rank-section-timeouts setup:{DIGITS}"
    text = f"{header}export NVTE_APPLY_QK_LAYER_SCALING={DIGITS}\nft_launcher {options} {LAUNCH.split(' ', 1)[1]}\n"
    (tmp_path / "a.sh").write_text(text)
    assert hcp("check", "a.sh", cwd=tmp_path).returncode in (0, 1, 2, 4)


SHELL = """#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=4
#SBATCH --export=ALL,DEPLOY_KEY=hunter2
export HF_TOKEN=hunter2 https_proxy=https://me:hunter2@proxy:80
source https://me:hunter2@host/x.sh
if foo; then MY_TOKEN=hunter2; else MY_TOKEN=other-hunter2; fi
WANDB_API_KEY=hunter2 srun --export=ALL,S3_SECRET=hunter2 env DB_PASSWORD=hunter2 python pretrain_gpt.py \\
  --num-layers 2 --hidden-size 64 --num-attention-heads 8 --context-parallel-size 4 --cp-comm-type a2a+p2p \\
  --hierarchical-context-parallel-sizes 2 3 --data-path https://me:hunter2@host/x --wandb-key hunter2 \\
  --contxt-parallel-size $MY_TOKEN --wandb-key=hunter2 --tokenizer-model https://hunter2@hub/x
"""
BRIDGE = """model:
  context_parallel_size: 4
  cp_comm_type: a2a+p2p
  hierarchical_context_parallel_sizes: [2, 3]
checkpoint:
  load: https://me:hunter2@host/x
logger:
  wandb_key: hunter2
env_vars:
  WANDB_API_KEY: hunter2
"""
VERL = (
    "python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.strategy=megatron trainer.n_gpus_per_node=8 "
    "trainer.nnodes=1 actor_rollout_ref.actor.megatron.context_parallel_size=3 "
    "actor_rollout_ref.model.path=https://me:hunter2@hub/x +ray_kwargs.ray_init.runtime_env.env_vars.X_TOKEN=hunter2"
)


@pytest.mark.sample(4)
@pytest.mark.parametrize("output", ["text", "json", "github", "sarif", "show", "show json"])
@pytest.mark.parametrize(("name", "text"), [("a.sh", SHELL), ("a.yaml", BRIDGE), ("verl.sh", VERL)])
def test_no_output_shows_a_credential(name: str, text: str, output: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    show = ["--show"] if "show" in output else []
    form = output.removeprefix("show").strip() or "text"
    done = hcp("check", name, *show, "--format", form, cwd=tmp_path)
    assert done.returncode in (0, 1, 4), done.stderr
    assert "cp" in done.stdout and "hunter2" not in done.stdout + done.stderr


def test_an_option_with_an_empty_value_is_judged() -> None:
    done = hcp("check", "--", "--indow-size=")
    assert done.returncode == 1 and not done.stderr, done.stderr
