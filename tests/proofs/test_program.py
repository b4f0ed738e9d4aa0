"""What every program in checks/ has in common: arguments, exit codes, JSON, and clear words when it cannot run."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from megatron_hcp.proofs.procs import run_workers
from support.processes import HANG_S, have_ended

CHECKS = [
    path
    for path in sorted((Path(__file__).resolve().parents[2] / "checks").glob("*.py"))
    if "megatron_hcp.proofs.program" in path.read_text()
]
WITHOUT_TORCH = """
import runpy, sys
sys.modules["torch"] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
PROGRAM = """
import os, sys, time
from megatron_hcp.proofs.program import Program
def work(world, options):
    import torch
    import torch.distributed as dist
    if options.fault == "waits":
        os.write(1, f"{os.getpid()}\\n".encode())
        time.sleep(10**6)
    if options.fault == "dies" and world.rank == 2:
        os.kill(os.getpid(), 9)
    if options.fault == "hangs" and world.rank == 1:
        time.sleep(10**6)
    total = torch.ones(1)
    dist.all_reduce(total)
    world.expect("the ranks add up", total.item() == 4, f"{total.item():g}")
    world.expect("rank 3 agrees", options.fault != "disagrees" or world.rank != 3, f"rank {world.rank}")
    world.expect_at_most("an error", float("nan") if options.fault == "nan" and world.rank == 1 else 1e-12, 1e-10)
    if options.fault == "names" and world.rank:
        world.expect("something else", True)
def add_arguments(parser):
    parser.add_argument("--fault")
sys.exit(Program("sample", "A sample.", work, world_size=lambda options: 4, needs=("torch",), timeout=600,
                 add_arguments=add_arguments).main())
"""


TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]


def run(*arguments, env=None):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=HANG_S, env={**os.environ, **(env or {})}
    )


@pytest.fixture
def sample(tmp_path):
    path = tmp_path / "sample.py"
    path.write_text(PROGRAM)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("path", CHECKS, ids=lambda path: path.stem)
def test_help_and_a_missing_torch_need_no_torch(path):
    helped = run("-c", WITHOUT_TORCH, path, "--help")
    assert helped.returncode == 0 and "Exit status" in helped.stdout
    lacking = run("-c", WITHOUT_TORCH, path, "--json")
    assert lacking.returncode == 2
    assert "torch" in json.loads(lacking.stdout)["error"]
    assert lacking.stderr.count("\n") == 1 and "pip install '.[megatron]'" in lacking.stderr


@pytest.mark.torch
def test_transformer_engine_that_is_not_there_is_named(sample):
    done = run(CHECKS[0], "--attention", "transformer-engine")
    assert CHECKS[0].stem == "attention_parity"
    assert done.returncode == 2
    assert done.stdout == "could not run: transformer-engine not installed: pip install '.[te]' in a checkout\n"


@pytest.mark.torch
def test_everything_held_is_exit_0_and_one_line_per_result(sample):
    done = run(sample)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == [
        "ok   the ranks add up: 4",
        "ok   rank 3 agrees: rank 0",
        "ok   an error 1.0e-12 (bound 1.0e-10)",
    ]
    assert lines[3].startswith("passed: 3 of 3 results hold, 4 processes, gloo, torch ")
    assert done.stderr == ""


@pytest.mark.torch
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("disagrees", "FAIL rank 3 agrees: on rank 3: rank 3"),
        ("nan", "FAIL an error nan (bound 1.0e-10): on rank 1"),
        ("names", "the ranks did not do the same"),
        ("dies", "rank 2 was killed by SIGKILL"),
    ],
)
def test_what_did_not_hold_is_exit_1_and_said_on_stderr(sample, fault, said):
    done = run(sample, "--fault", fault, "--timeout", str(HANG_S))
    assert done.returncode == 1
    # torch may log a line of its own before: Gloo's, where a rank dies while the others still connect.
    assert any(line.startswith("sample.py: ") for line in done.stderr.splitlines())
    assert said in done.stderr
    assert done.stdout.splitlines()[-1].startswith("failed: ")


@pytest.mark.torch
def test_a_rank_that_hangs_is_named(sample):
    done = run(sample, "--fault", "hangs", "--timeout", "8")
    assert done.returncode == 1 and done.stdout.startswith("failed: ")
    # Which of the others give up first, and whether they do before everything is ended, depends on the machine's load.
    gave_up = r"rank (\d, )*1(, \d)* had not finished when rank [023] failed: Traceback \(most recent call last\):\n"
    named = rf"{gave_up}|still running: rank (\d, )*1"
    assert re.search(named, done.stderr), done.stderr


@pytest.mark.torch
def test_a_rank_waits_for_others_less_long_than_everything_may_last(tmp_path):
    def work(rank):
        from megatron_hcp.proofs.world import joined_world

        with joined_world(rank, 1, argparse.Namespace(timeout=HANG_S), str(tmp_path / "store")) as world:
            return world.timeout

    assert 0 < run_workers(work, 1, HANG_S)[0] < HANG_S


@pytest.mark.torch
def test_a_world_of_another_size_is_exit_2(sample):
    done = run(sample, env={"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"})
    assert done.returncode == 2
    assert "runs on 4 processes, torchrun started 2: use --nproc-per-node 4" in done.stderr


@pytest.mark.torch
def test_under_torchrun_a_rank_that_dies_ends_all(sample):
    done = run(*TORCHRUN, sample, "--fault", "dies")
    assert done.returncode == 1
    assert "Signal 9 (SIGKILL)" in done.stderr


@pytest.mark.torch
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_under_torchrun_no_worker_outlives_a_killed_torchrun(sample):
    torchrun = subprocess.Popen(
        [sys.executable, *TORCHRUN, sample, "--fault", "waits"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert torchrun.stdout
    pids = [int(torchrun.stdout.readline()) for _ in range(4)]
    torchrun.kill()
    torchrun.wait()
    assert have_ended(pids)


@pytest.mark.sample(3)
@pytest.mark.parametrize("sizes", [["2"], ["2,x"], ["0,4"], ["2,2", "2,4"]])
def test_sizes_that_are_none_are_refused_by_the_arguments(sizes):
    done = run(CHECKS[0], "--sizes", *sizes)
    assert done.returncode == 2
    assert "wanted" in done.stderr
