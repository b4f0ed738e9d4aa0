"""What a launch that fails prints: what its reader acts on now."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess

Hcp = Callable[..., "CompletedProcess[str]"]
SHORT = "--num-layers 4 --seq-length 1024 --context-parallel-size 2 --sequence-parallel".split()
TOP1 = "--hidden-size 64 --num-attention-heads 4 --num-experts 8 --moe-router-topk 1".split()
GATHER = (
    "--num-layers 4 --hidden-size 128 --num-attention-heads 8 --seq-length 128 --bf16 "
    "--micro-batch-size 1 --overlap-param-gather --overlap-grad-reduce --train-iters 3 --eval-interval 3 --lr 0.1 "
    "--max-position-embeddings 128"
).split()


def test_infos_are_counted_and_told_once_the_launch_passes(hcp: Hcp) -> None:
    assert "info PAR001" in hcp("check", "--", *SHORT).stdout
    failing = hcp("check", "--", *SHORT, "--pipeline-model-parallel-size", "3")
    assert failing.returncode == 1
    assert "info PAR001" not in failing.stdout and " shown once it passes;" in failing.stdout


def test_the_two_nearest_changes_that_satisfy_a_guard_are_shown_and_all_are_in_the_json(hcp: Hcp) -> None:
    launch = ("check", "--assume", "mcore=0.19.0", "--assume", "world_size=8", "--", *GATHER)
    shown = hcp(*launch).stdout.splitlines()
    at = next(number for number, line in enumerate(shown) if "START001" in line)
    assert [line.startswith("    fix: ") for line in shown[at + 1 : at + 4]] == [True, True, False]
    data = json.loads(hcp("check", "--format", "json", "--full", *launch[1:]).stdout)
    (refused,) = (item for item in data["findings"] if item["rule"] == "START001")
    assert len(refused["fixes"]) > 2


def test_what_the_first_fix_of_another_error_clears_stands_under_it(hcp: Hcp) -> None:
    """6 expert-parallel ranks fit neither 8 experts nor 8 ranks with TP 2: 4 do both, with nothing else."""
    moe = "--num-layers 4 --num-experts 8 --expert-model-parallel-size 6 --tensor-model-parallel-size 2"
    said = hcp("check", "--assume", "world_size=8", "--", *moe.split(), "--sequence-parallel", "--disable-bias-linear")
    fixes = [line for line in said.stdout.splitlines() if line.startswith("    fix: ")]
    assert fixes == ["    fix: --expert-model-parallel-size 4  # expert parallelism over 4 ranks; clears TOPO004 too"]


def test_the_last_line_of_a_failed_launch_says_what_was_read_of_a_branch(hcp: Hcp) -> None:
    dev = ("check", "--assume", "mcore=0.19.0", "--assume", "mcore_branch=dev", "--", "--num-layers", "4")
    failed = hcp(*dev, *TOP1).stdout.splitlines()
    assert failed[-1].endswith("; as of megatron-core dev of 2026-08-21, the last read")
    assert not any("is a build of dev" in line for line in failed)
    assert any("is a build of dev" in line for line in hcp(*dev).stdout.splitlines())
