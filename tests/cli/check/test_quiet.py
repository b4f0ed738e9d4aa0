"""`hcp check --quiet`: what is to be done, and nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

Hcp = Callable[..., "CompletedProcess[str]"]


def test_a_launch_with_nothing_to_do_prints_nothing(hcp: Hcp, root: Path) -> None:
    done = hcp("check", "--quiet", "examples/mlm_hcp.sbatch", cwd=root)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_findings_keep_their_fixes_and_lose_everything_around_them(hcp: Hcp, root: Path) -> None:
    loud = hcp("check", "examples/mlm_broken.sh", cwd=root)
    done = hcp("check", "-q", "examples/mlm_broken.sh", cwd=root)
    assert done.returncode == loud.returncode == 1
    assert done.stdout.splitlines() == [line for line in loud.stdout.splitlines() if "error " in line or "fix:" in line]


def test_what_is_undecided_is_still_told(hcp: Hcp, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("torchrun pretrain_gpt.py --context-parallel-size $SIZE\n")
    done = hcp("check", "-q", "run.sh", cwd=tmp_path)
    assert done.returncode == 4
    assert all(": undecided: " in line for line in done.stdout.splitlines()) and done.stdout


def test_an_info_is_not_told_and_a_folder_has_no_summary(hcp: Hcp, root: Path, tmp_path: Path) -> None:
    shutil.copy(root / "examples" / "mlm_hcp.sbatch", tmp_path)
    contrary = ("--assume", "seq_length=4096")  # the launch says something else
    assert " info ASSUME001 " in hcp("check", "mlm_hcp.sbatch", *contrary, cwd=tmp_path).stdout
    assert hcp("check", "-q", "mlm_hcp.sbatch", *contrary, cwd=tmp_path).stdout == ""
    assert hcp("check", "-q", ".", cwd=tmp_path).stdout == ""


def test_it_is_for_text_alone(hcp: Hcp, root: Path) -> None:
    done = hcp("check", "-q", "examples/mlm_broken.sh", "--format", "json", cwd=root)
    assert done.returncode == 2 and "found --quiet with --format json" in done.stderr


def test_a_fix_of_two_errors_is_shown_under_the_first(hcp: Hcp, tmp_path: Path) -> None:
    words = "--context-parallel-size 6 --tensor-model-parallel-size 2 --sequence-parallel"
    lengths = "--seq-length 1024 --max-position-embeddings 1024"
    (tmp_path / "run.sh").write_text(f"torchrun pretrain_gpt.py {words} {lengths}\n")
    data = json.loads(hcp("check", "run.sh", "--format", "json", cwd=tmp_path).stdout)
    fixes = [[fix["overrides"] for fix in one["fixes"]] for one in data["findings"] if one["severity"] == "error"]
    assert ["seq_length=1020"] in fixes[0] and ["seq_length=1020"] in fixes[1], "the launch no longer shows it"
    assert hcp("check", "run.sh", cwd=tmp_path).stdout.count("    fix: --seq-length 1020") == 1


def test_a_fix_that_leaves_another_error_of_the_same_sizes_says_which(hcp: Hcp) -> None:
    words = "--tensor-model-parallel-size 16 --num-attention-heads 24 --context-parallel-size 4".split()
    done = hcp("check", "--assume", "world_size=32", "--", *words)
    fixes = [line for line in done.stdout.splitlines() if line.startswith("    fix: ")]
    assert fixes == [
        "    fix: --tensor-model-parallel-size 8  # tensor parallelism over 8 ranks; clears TOPO003, TP001 too"
    ]
    data = json.loads(hcp("check", "--assume", "world_size=32", "--format", "json", "--full", "--", *words).stdout)
    (ranks,) = (item for item in data["findings"] if item["rule"] == "TOPO003")
    (cp,) = (fix["effect"] for fix in ranks["fixes"] if fix["cli"][0] == "--context-parallel-size")
    assert cp.endswith("; CP008, TP001 remain")
