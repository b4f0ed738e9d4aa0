"""`hcp dcp weights` as a process: the multipliers are those of the derivation."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

Hcp = Callable[..., "CompletedProcess[str]"]


def test_weights_as_text(hcp: Hcp) -> None:
    done = hcp("dcp", "weights", "--world-size", "8", "--sizes", "8", "--sizes", "4,2,1,1")
    assert done.stdout.splitlines()[:6] == [
        "8 ranks, DDP mean, outputs detached; all factors apply to (loss sum of the group) / T",
        "mb  groups  backward  report  per token",
        " 0     1x8         8       1          1",
        " 1     1x4         8       2          1",
        " 1     1x2         8       4          1",
        " 1     2x1         8       8          1",
    ]
    assert done.returncode == 0


def test_weights_count_in_what_megatron_core_multiplies_a_loss_by(hcp: Hcp) -> None:
    """schedules.py times 4 over 6: what is returned is 8 x 6 / 4; without a number of micro-batches 8 x 2 / 4."""
    sizes = ("--world-size", "8", "--sizes", "8", "--sizes", "4,2,1,1", "--context-parallel-size", "4")
    done = hcp("dcp", "weights", *sizes, "--num-micro-batches", "6")
    assert [line.split()[2] for line in done.stdout.splitlines()[2:6]] == ["12"] * 4
    assert "megatron-core multiplies it by 2/3" in done.stdout
    told = json.loads(hcp("dcp", "weights", *sizes, "--format", "json").stdout)
    assert told["applied"] == 2
    assert {group["backward"] for group in told["groups"]} == {4}
    assert [group["report_mean"] for group in told["groups"]] == [1, 2, 4, 8]


@pytest.mark.parametrize(
    "reduction, gather, backward",
    [
        ("mean", "detached", [8, 8, 8]),
        ("mean", "autograd", [2, 4, 8]),
        ("mean", "replicated", [2, 4, 8]),
        ("sum", "detached", [1, 1, 1]),
        ("sum", "autograd", [0.25, 0.5, 1]),
        ("sum", "replicated", [0.25, 0.5, 1]),
    ],
)
def test_weights_as_json_are_those_of_the_derivation(
    hcp: Hcp, reduction: str, gather: str, backward: list[float]
) -> None:
    done = hcp(
        "dcp",
        "weights",
        "--world-size",
        "8",
        "--sizes",
        "4 2 1 1",
        "--reduction",
        reduction,
        "--gather",
        gather,
        "--format",
        "json",
    )
    told = json.loads(done.stdout)
    assert told["schema"] == "hcp.dcp-weights/1"
    assert [group["local_cp_size"] for group in told["groups"]] == [4, 2, 1]
    assert [group["num_groups"] for group in told["groups"]] == [1, 1, 2]
    assert [group["backward"] for group in told["groups"]] == backward
    assert [group["report_mean"] for group in told["groups"]] == [2, 4, 8]


@pytest.mark.parametrize(
    "arguments, says",
    [
        (("--sizes", "4,2"), "6 ranks together; wanted 8"),
        (("--sizes", "4,x"), "wanted group sizes"),
        (("--sizes", ""), "wanted group sizes"),
        (("--sizes", "8,0"), "wanted group sizes"),
        ((), "--sizes"),
        (("--sizes", "8", "--gather", "all"), "'all'"),
        (("--sizes", "8", "--num-micro-batches", "3"), "give megatron-core's static size too"),
        (("--sizes", "\uff18"), "wanted group sizes"),
        (("--sizes", "8", "--context-parallel-size", "3"), "wanted a divisor of the 8 ranks"),
        (("--sizes", "8", "--sizes", "8", "--context-parallel-size", "4", "--num-micro-batches", "1"), "at least 2"),
        (("--sizes", "8", "--context-parallel-size", "0"), "context_parallel_size: found 0"),
    ],
)
def test_bad_sizes_are_one_line_and_exit_2(hcp: Hcp, arguments: tuple[str, ...], says: str) -> None:
    done = hcp("dcp", "weights", "--world-size", "8", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr and done.stderr.count("\n") == 1
