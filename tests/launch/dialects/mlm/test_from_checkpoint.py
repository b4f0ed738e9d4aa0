"""What a checkpoint settles under --use-checkpoint-args, as each release of Megatron-LM says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from megatron_hcp.launch.dialects.mlm.elsewhere import from_checkpoint
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.validators.given.options import ParserOption, default_value, option_of
from megatron_hcp.validators.table import program_of_release
from support.needs import UPSTREAM

IF_GIVEN = ("tokenizer_model", "tokenizer_type")
"""Under --use-tokenizer-model-from-checkpoint-args."""


def set_in(source: str) -> dict[str, bool]:
    """The arguments that `load_args_from_checkpoint` sets -> whether it overwrites what isn't None."""
    function = next(
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name == "load_args_from_checkpoint"
    )
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and ast.unparse(node.func) == "_set_arg"]
    return {
        ast.literal_eval(call.args[0]): any(
            word.arg == "force" and ast.literal_eval(word.value) for word in call.keywords
        )
        for call in calls
    }


def options_of(release: str) -> dict[str, ParserOption]:
    program = program_of_release("megatron-lm", release)
    lines = program.find("options") if program is not None else None
    assert lines is not None
    return {option.dest: option for option in map(option_of, lines.lines)}


@pytest.mark.upstream
@pytest.mark.parametrize("release", ["0.17.1", "0.18.2"])
def test_each_option_that_upstream_takes_from_a_checkpoint_is_listed(release: str) -> None:
    file = Path(UPSTREAM, f"megatron-core-{release}", "megatron/training/checkpointing.py")
    options = options_of(release)
    for name, forced in set_in(file.read_text(encoding="utf-8")).items():
        option = options.get(name)
        if option is None or name in IF_GIVEN or "pipeline" in name or "parallel" in name:
            continue
        key = option.names[0].removeprefix("--").replace("-", "_")
        settled = forced or default_value(option.default) is None
        assert (key in from_checkpoint()) == settled, key


def launch_of(*words: str) -> frozenset[str]:
    """The names of what the launch leaves to its checkpoint."""
    return frozenset(load_launch("", LoadOptions(words=("--use-checkpoint-args", "--load", "/ckpt", *words))).unknown)


def test_a_launch_that_writes_its_heads_means_no_groups_of_them_if_it_writes_none() -> None:
    assert "num_query_groups" in launch_of("--hidden-size", "512")
    assert "num_query_groups" not in launch_of("--num-attention-heads", "16")
    assert "num_experts" in launch_of("--num-attention-heads", "16")


@pytest.mark.parametrize("load", ["--load", "--pretrained-checkpoint"])
def test_the_checkpoint_is_the_one_that_is_loaded(load: str) -> None:
    words = ("--use-checkpoint-args", load, "/ckpt", "--context-parallel-size", "2")
    assert "num_experts" in load_launch("", LoadOptions(words=words)).unknown
    assert "num_experts" not in load_launch("", LoadOptions(words=(words[0], *words[3:]))).unknown
