"""A guard speaks of the launch's own options, whatever upstream's configs call what it makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.report import Finding
from megatron_hcp.judge.start.made_from import options_behind
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.rules.registry import rules_for
from megatron_hcp.validators.outcome import Guard, Refusal
from megatron_hcp.validators.program import StartProgram, Unit

REQUIRED = {
    "--num-layers": "4",
    "--hidden-size": "64",
    "--num-attention-heads": "4",
    "--seq-length": "64",
    "--max-position-embeddings": "64",
    "--micro-batch-size": "1",
}


def guards_of(folder: Path, *words: str, without: tuple[str, ...] = (), release: str = "0.19.0") -> list[Finding]:
    """What upstream's start-up refuses of a script that starts pretrain_gpt.py on two ranks."""
    given = [word for option, value in REQUIRED.items() if option not in without for word in (option, value)]
    file = folder / "run.sh"
    file.write_text(f"torchrun --nproc-per-node 2 pretrain_gpt.py {' '.join((*given, *words))}\n")
    launch = load_launch(str(file), LoadOptions(assumes=(f"mcore={release}", "te=2.9", "arch=sm90")))
    return [item for item in check_launch(launch, rules_for, fixes=False).findings if item.id.startswith("START")]


@pytest.mark.parametrize(
    ("words", "option", "says"),
    [
        ("--fp8-param-gather", "fp8_param_gather", "fp8_param must be used together with fp8 mode"),
        ("--no-position-embedding", "no_position_embedding", "--no-position-embedding is deprecated"),
        ("--moe-router-padding-for-fp8", "moe_router_padding_for_fp8", "fp8/fp4 must be specified"),
        ("--squared-relu", "squared_relu", "When bias_activation_fusion is True"),
        (
            "--pipeline-model-parallel-size 2 --overlap-p2p-communication-warmup-flush",
            "overlap_p2p_communication_warmup_flush",
            "overlapping in warmup and flush is only compa",
        ),
    ],
)
def test_a_config_field_is_named_by_the_option_that_it_comes_from(
    tmp_path: Path, words: str, option: str, says: str
) -> None:
    found = [item for item in guards_of(tmp_path, *words.split()) if says in item.problem.message]
    assert [option in item.keys for item in found] == [True]


def test_options_that_a_function_names_as_texts_are_named(tmp_path: Path) -> None:
    (item,) = guards_of(tmp_path, "--deterministic-mode", "--cross-entropy-loss-fusion", release="0.20.0")
    assert "cross_entropy_loss_fusion" in item.keys
    assert "--deterministic-mode requires" in item.problem.message


def test_an_option_that_callers_hand_on_speaks_in_a_few_words_too() -> None:
    sizes = [word for option in REQUIRED.items() for word in option]
    words = (*sizes, "--pipeline-model-parallel-layout", "x")
    launch = load_launch("", LoadOptions(words=words, assumes=("mcore=0.16.1", "world_size=1")))
    (item,) = check_launch(launch, rules_for, fixes=False).findings
    assert "Invalid layer character" in item.problem.message
    assert item.keys == ("layer_char", "pipeline_model_parallel_layout")


def test_a_guard_that_stands_in_two_blocks_is_told_of_the_one_that_the_launch_states() -> None:
    stated = ("mcore=0.12.3", "world_size=2", "env.CUDA_DEVICE_MAX_CONNECTIONS=1")
    sharded = "--use-custom-fsdp --use-distributed-optimizer --no-gradient-accumulation-fusion"
    sizes = [word for option in REQUIRED.items() for word in option]
    launch = load_launch("", LoadOptions(words=(*sizes, *sharded.split()), assumes=stated))
    (item,) = [one for one in check_launch(launch, rules_for, fixes=False).findings if one.id.startswith("START")]
    assert item.keys == ("use_custom_fsdp",)
    assert "FSDP always requires CUDA_DEVICE_MAX_CONNECTIONS" in item.problem.message


def test_an_option_that_is_handed_to_a_constructor_leads_to_what_it_refuses() -> None:
    lines = {"validate": "do Layout.__init__(args.num_layers)", "Layout.__init__": "check count % 2 == 0"}
    units = {name: Unit(name, "def", (), "x.py", (line,)) for name, line in lines.items()}
    refusal = Refusal(Guard("megatron-lm", "x.py", "Layout.__init__", "", "count % 2 == 0", ""), (("count", 3),))
    launch = load_launch("", LoadOptions(dialect="mlm", words=("--num-layers", "3")))
    program = StartProgram("megatron-lm", "1", units.get, "validate", 1, 0)
    assert options_behind(launch, program, refusal, ()) == ["num_layers"]


@pytest.mark.parametrize("option", [*REQUIRED])
def test_an_option_that_upstream_requires_is_missed_in_a_launch_that_has_the_others(
    tmp_path: Path, option: str
) -> None:
    assert guards_of(tmp_path) == []
    assert any(option[2:].replace("-", "_") in item.keys for item in guards_of(tmp_path, without=(option,)))


def test_a_missing_argument_is_named_in_upstreams_message(tmp_path: Path) -> None:
    (item,) = guards_of(tmp_path, without=("--hidden-size",))
    assert '"hidden_size argument is None"' in item.problem.message


def test_an_excerpt_is_not_told_what_upstream_requires(tmp_path: Path) -> None:
    assert guards_of(tmp_path, without=("--seq-length", "--micro-batch-size")) == []


def test_a_program_that_makes_the_model_is_not_told_either(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text("torchrun --nproc-per-node 2 mine.py --tensor-model-parallel-size 2 --bf16\n")
    launch = load_launch(str(file), LoadOptions(assumes=("mcore=0.19.0",)))
    report = check_launch(launch, rules_for, fixes=False)
    assert not [item for item in report.findings if item.id.startswith("START")]
