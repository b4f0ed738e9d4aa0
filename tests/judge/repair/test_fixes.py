"""Fixes as a person types them: overrides, words of the command line, flags to leave out, lines of the script."""

from __future__ import annotations

from typing import Any

import pytest

from megatron_hcp.judge.repair.fixes import apply_edits, written
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Dialect, Launch
from megatron_hcp.launch.readers.target import read_text
from megatron_hcp.rules.rule import Fix
from support.rules import launch

SRUN = "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\nsrun python pretrain_gpt.py --context-parallel-size 2\n"
TORCHRUN = "torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --context-parallel-size 2 --sft\n"
VARIABLE = "env.NVTE_FUSED_ATTN"


def script(text: str) -> Launch:
    return build_launch(read_text(text, "launch.sh"))


@pytest.mark.parametrize(
    ("text", "edits", "overrides", "cli", "without", "lines"),
    [
        (TORCHRUN, {"sft": False}, ("sft=false",), (), ("--sft",), ()),
        (TORCHRUN, {"cp": None}, ("context_parallel_size=null",), (), ("--context-parallel-size",), ()),
        (TORCHRUN, {"hcp_sizes": None}, ("hierarchical_context_parallel_sizes=null",), (), (), ()),
        (
            TORCHRUN,
            {"tp": 2, "cp": None},
            ("tensor_model_parallel_size=2", "context_parallel_size=null"),
            ("--tensor-model-parallel-size", "2"),
            ("--context-parallel-size",),
            (),
        ),
        (TORCHRUN, {"rope_fusion": False}, ("no_rope_fusion=true",), ("--no-rope-fusion",), (), ()),
        (TORCHRUN, {VARIABLE: "1"}, (f"{VARIABLE}=1",), ("NVTE_FUSED_ATTN=1",), (), ()),
        (TORCHRUN, {VARIABLE: None}, (f"{VARIABLE}=null",), (), (), ("unset NVTE_FUSED_ATTN",)),
        (TORCHRUN, {"nodes": 4}, ("nodes=4",), (), (), ("torchrun --nnodes=4",)),
        (TORCHRUN, {"gpus_per_node": 4}, ("gpus_per_node=4",), (), (), ("torchrun --nproc-per-node=4",)),
        (TORCHRUN, {"ntasks_per_node": 1}, ("ntasks_per_node=1",), (), (), ("#SBATCH --ntasks-per-node=1",)),
        (SRUN, {"ntasks_per_node": 8}, ("ntasks_per_node=8",), (), (), ("#SBATCH --ntasks-per-node=8",)),
        (SRUN, {"nodes": 4}, ("nodes=4",), (), (), ("#SBATCH --nodes=4",)),
        (SRUN, {"placement": "block"}, ("placement=block",), (), (), ("srun --distribution=block",)),
        (SRUN, {"sbatch.signal": "TERM@300"}, ("sbatch.signal=TERM@300",), (), (), ("#SBATCH --signal=TERM@300",)),
        (SRUN, {"start": "ft_launcher"}, ("start=ft_launcher",), (), (), ()),
        (
            TORCHRUN.replace("torchrun --nnodes 2", "ft_launcher"),
            {"nodes": 4},
            ("nodes=4",),
            (),
            (),
            ("ft_launcher --nnodes=4",),
        ),
    ],
)
def test_a_fix_says_all_that_a_person_has_to_change(
    text: str,
    edits: dict[str, Any],
    overrides: tuple[str, ...],
    cli: tuple[str, ...],
    without: tuple[str, ...],
    lines: tuple[str, ...],
) -> None:
    fix = written(script(text), Fix(edits, "effect"))
    assert (fix.overrides, fix.cli, fix.without, fix.lines) == (overrides, cli, without, lines)


@pytest.mark.parametrize(
    ("dialect", "text", "edits", "cli"),
    [
        (
            "bridge",
            "model.context_parallel_size=2",
            {"hcp_sizes": (2, 2)},
            "model.hierarchical_context_parallel_sizes=[2,2]",
        ),
        ("verl", "trainer.nnodes=1", {"nodes": 4}, "trainer.nnodes=4"),
        ("bridge", "model.context_parallel_size=2", {"sequence_parallel": True}, "model.sequence_parallel=true"),
    ],
)
def test_the_other_dialects_have_one_word_an_edit(dialect: Dialect, text: str, edits: dict[str, Any], cli: str) -> None:
    fix = written(launch(dialect, text), Fix(edits, "effect"))
    assert fix.overrides == fix.cli == (cli,) and fix.without == fix.lines == ()


@pytest.mark.parametrize(
    ("text", "cli", "lines"),
    [
        ("{} --nodes 1 --gpus-per-node 8 --recipe qwen3_8b_sft_32k_config\n", ("--nodes", "8"), ()),
        (
            "#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=8\nsrun {} --recipe qwen3_8b_sft_32k_config\n",
            (),
            ("#SBATCH --nodes=8",),
        ),
    ],
)
def test_nodes_are_written_in_the_words_of_bridges_launcher_where_it_has_them(
    text: str, cli: tuple[str, ...], lines: tuple[str, ...]
) -> None:
    fix = written(script(text.format("python scripts/training/setup_experiment.py")), Fix({"nodes": 8}, "64 ranks"))
    assert (fix.cli, fix.lines) == (cli, lines)


def test_more_tasks_of_srun_are_more_ranks() -> None:
    """Where srun starts the ranks, tasks and nodes give the world size, and the tasks of a node its GPUs."""
    edited = apply_edits(script(SRUN), {"ntasks_per_node": 8})
    assert edited is not None
    assert [edited.facts[name].value for name in ("world_size", "gpus_per_node")] == [16, 8]
    edited = apply_edits(script(SRUN), {"nodes": 3})
    assert edited is not None
    assert [edited.facts[name].value for name in ("world_size", "gpus_per_node")] == [12, 4]
    stated = script(SRUN.replace("srun ", "srun --ntasks=8 "))
    edited = apply_edits(stated, {"ntasks_per_node": 8})
    assert edited is not None and edited.facts["world_size"].value == 8, "a number that is written stays"


def test_an_edit_without_a_key_in_the_dialect_is_none() -> None:
    assert apply_edits(launch("mlm", "--context-parallel-size 2"), {"use_decentralized_pg": False}) is None
