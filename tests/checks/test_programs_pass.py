"""Every verification program passes here, alone and under torchrun, and says in JSON what it found."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from support.processes import HANG_S

PROGRAMS = [
    "attention_parity",
    "decentralized_collection",
    "dynamic_cp_loss",
    "dynamic_cp_round_trip",
    "fsdp_context_parallel",
    "hcp_groups",
    "loss_normalization",
    "mamba_exchange",
    "offloading_refusals",
    "packed_rotary",
    "packed_tokens",
    "parity",
    "pipeline_packed",
    "recompute_guard",
    "resharding",
    "silent_cp_loss",
    "stale_groups",
    "training_step",
    "windows_and_sinks",
    "wrong_level_order",
]


def test_this_list_names_every_program_that_states_results(checks_dir):
    stating = [path.stem for path in checks_dir.glob("*.py") if "megatron_hcp.proofs.program" in path.read_text()]
    assert sorted(stating) == PROGRAMS


def assert_passed(ran, program):
    assert ran.code == 0, ran.stderr
    assert ran.report["schema"] == "hcp.step/1"
    assert (ran.report["program"], ran.report["ok"], ran.report["world_size"]) == (program, True, 4)
    assert (ran.report["backend"], ran.report["error"]) == ("gloo", None)
    assert ran.report["results"] and ran.failed() == []
    assert ran.stderr == ""


@pytest.mark.parametrize("program", ["attention_parity", "training_step"])
@pytest.mark.torch
def test_a_program_passes_as_a_user_starts_it(started, program):
    assert_passed(started(program), program)


@pytest.mark.parametrize(
    "program", ["decentralized_collection", "hcp_groups", "silent_cp_loss", "stale_groups", "wrong_level_order"]
)
@pytest.mark.torch
def test_a_program_passes_in_a_process_that_has_imported_megatron_core_already(forked, program):
    assert_passed(forked(program), program)


@pytest.mark.torch
def test_parity_holds_on_eight_processes_for_two_shapes_of_the_levels(forked):
    ran = forked("attention_parity", "--sizes", "2,4", "4,2", "--dtypes", "float64")
    assert ran.code == 0, ran.stderr
    assert ran.report["world_size"] == 8
    for way in ("p2p float64", "all_gather float64", "a2a float64", "a2a+p2p [2, 4] float64", "a2a+p2p [4, 2] float64"):
        assert next(result for result in ran.report["results"] if result["name"] == way)["measured"] < 1e-13
    assert ran.held("a2a refuses GQA") and ran.held("a2a+p2p [4, 2] refuses MQA")


@pytest.mark.torch
def test_groups_are_as_computed_on_eight_processes(forked):
    ran = forked("hcp_groups", "--world-size", "8")
    assert ran.code == 0, ran.stderr


@pytest.mark.torch
@pytest.mark.upstream
def test_every_transformer_engine_version_would_leave_cp_off_without_the_sizes(forked, upstream):
    sources = sorted(str(path) for path in upstream.glob("transformer-engine-*"))
    assert len(sources) >= 4
    ran = forked("silent_cp_loss", "--te-source", *sources)
    assert ran.code == 0, ran.stderr
    for source in sources:
        name = source.rpartition("/")[2]
        assert ran.held("with sizes [2, 2]", f"{name} takes cp_size 4, context_parallel True")
        assert ran.held("without sizes", f"{name} takes cp_size 1, context_parallel False")


CPUS_STAND_FOR_GPUS = """
import torch, megatron_hcp.proofs.program as program, megatron_hcp.proofs.world as world
program._require = lambda needs, options: None
world.place_of = lambda rank, size, attention: (torch.device("cpu"), "gloo")
"""
OURS_STANDS_FOR_TRANSFORMER_ENGINES = (
    CPUS_STAND_FOR_GPUS
    + """
import sys, types
from megatron_hcp.proofs.dot_product_attention import DotProductAttention
package = types.ModuleType("transformer_engine")
package.pytorch = types.ModuleType("transformer_engine.pytorch")
package.pytorch.DotProductAttention = DotProductAttention
sys.modules.update({"transformer_engine": package, "transformer_engine.pytorch": package.pytorch})
"""
)
OURS_STANDS_FOR_MEGATRON_CORES = (
    CPUS_STAND_FOR_GPUS
    + """
import megatron.core.extensions.transformer_engine as extension
from megatron_hcp.proofs.te_attention import core_attention_class
extension.TEDotProductAttention = core_attention_class()
"""
)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("program", "arguments", "patch", "num_results"),
    [
        ("attention_parity", ["--layouts", "bshd"], OURS_STANDS_FOR_TRANSFORMER_ENGINES, 4),
        ("training_step", [], OURS_STANDS_FOR_MEGATRON_CORES, 2),
    ],
    ids=["attention_parity", "training_step"],
)
def test_the_way_to_transformer_engine_is_walked_with_a_stand_in(forked, program, arguments, patch, num_results):
    ran = forked(program, "--attention", "transformer-engine", *arguments, patch=patch)
    assert ran.code == 0, ran.stderr
    assert [result["bound"] for result in ran.report["results"]] == [2.0] * num_results


@pytest.mark.torch
def test_a_program_runs_under_torchrun_as_it_does_alone(checks_dir):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "4",
            str(checks_dir / "attention_parity.py"),
            "--dtypes",
            "float64",
            "--layouts",
            "thd",
            "--json",
        ],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["ok"] and report["world_size"] == 4
