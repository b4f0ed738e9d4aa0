"""A healthy launch prints little: what it could not decide, how much was checked, and the verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Hcp = Callable[..., "CompletedProcess[str]"]
HEALTHY = 6
STATED = ("te=2.14", "mcore=0.17.1", "mcore_branch=dev", "bridge=0.5.1", "verl=0.9.0", "arch=sm90")
LAUNCH = (
    "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 --max-position-embeddings 1024 "
    "--micro-batch-size 1 --bf16"
)


@pytest.mark.parametrize("name", ["bridge_hcp.yaml", "mlm_hcp.sbatch", "verl_dcp.yaml"])
@pytest.mark.parametrize(
    "stated", [(), ("te=2.14", "mcore=0.17.1", "mcore_branch=dev", "bridge=0.5.1", "verl=0.9.0", "arch=sm90")]
)
def test_a_healthy_example_prints_at_most_six_lines(hcp: Hcp, root: Path, name: str, stated: tuple[str, ...]) -> None:
    words = [word for fact in stated for word in ("--assume", fact)]
    done = hcp("check", f"examples/{name}", *words, cwd=root)
    assert done.returncode == 0 and len(done.stdout.splitlines()) <= HEALTHY, done.stdout


def test_faults_that_only_wait_for_a_release_take_one_line_and_name_each(hcp: Hcp) -> None:
    words = (
        "--context-parallel-size 2 --mtp-num-layers 1 --num-experts 8 --expert-model-parallel-size 2 --sft "
        "--tensor-model-parallel-size 2 --sequence-parallel --hybrid-override-pattern M*M* --disable-bias-linear "
        "--position-embedding-type rope --no-create-attention-mask-in-dataloader --multi-latent-attention"
    ).split()
    done = hcp("check", "--dialect", "mlm", "--", *words)
    (line,) = (line for line in done.stdout.splitlines() if "faults of some releases" in line)
    rules = line.partition("(")[2].partition(")")[0].split()
    assert len(rules) > 2 and "--assume mcore=VERSION" in line
    stated = hcp("check", "--dialect", "mlm", "--assume", "mcore=0.12.1", "--", *words).stdout
    assert "faults of some releases" not in stated and any(f" {rule} " in stated for rule in rules)


def test_guards_that_releases_reworded_are_told_once_and_all_counted(hcp: Hcp) -> None:
    done = hcp("check", "--dialect", "mlm", "--", *LAUNCH.split(), "--overlap-param-gather", "--overlap-grad-reduce")
    (line,) = (line for line in done.stdout.splitlines() if " error START001/" in line)
    assert "other guards would" in line and "FAILED: 3 errors" in done.stdout


def test_a_fix_that_renames_many_settings_shows_the_first_and_how_many_more(hcp: Hcp, tmp_path: Path) -> None:
    words = ["--num_layers=4", "--hidden_size=512", "--num_attention_heads=8", "--seq_length=1024"]
    script = tmp_path / "train.sh"
    script.write_text(f"torchrun --nproc-per-node 8 pretrain_gpt.py {' '.join(words)}\n")
    fix = next(line for line in hcp("check", str(script), "--diff").stdout.splitlines() if "which --diff shows" in line)
    assert ", and 3 more names" in fix and len(fix) <= 160
    assert "--num-layers for --num_layers" in fix and "--hidden" not in fix
    # Words alone have no patch.
    assert "--seq-length 1024" in hcp("check", "--dialect", "mlm", "--", *words).stdout
